"""The page of a verification: every part of a result in words, hostile texts escaped, the same result the same page."""

from dataclasses import replace

from specops.core.fidelity import GreedyFinding, Verdict
from specops.core.fidelity_report import Calibration, Verification
from specops.report.fidelity_page import build, render

RESULT = Verification(
    endpoint="http://a<b>", target="http://t", verdict=Verdict.NOT_LOSSLESS, diagnosis="leak 0.1", position=None, tokens=1_280,
    log_e=26.0, tv_bound=0.13, tolerance=0.01, alpha=1e-3, tokens_needed=None, problems=(), findings=("lossy setting: x",),
    not_tested=("stop strings",), sampling={"temperature": 1.0}, draft="draft", scope="5c0e",
    facts={"endpoint": {"dtype": "float32"}},
    path=((256, 3.0), (512, 9.0), (1_280, 26.0)), laws={"leak 0.1": 30.0, "greedy": -400.0},
    sensitivity={"always accept": 17, "leak 0.02": None},
    calibration=Calibration(tokens=(0,) * 9 + (80,), expected=(0.0,) * 9 + (76.0,), emitted=(0,) * 9 + (75,)),
    greedy=GreedyFinding(tokens=512, beyond=(3,), flips=2, largest_gap=0.7, tau=0.5),
    greedy_plain=GreedyFinding(tokens=512, beyond=(), flips=3, largest_gap=0.1, tau=0.5), alarm_at=900,
)  # fmt: skip


def test_the_page_shows_every_part_of_a_result(tmp_path):
    """Verdict, finding, e-value path, alternatives, replayed bugs, controls, calibration, greedy part, limits, scope."""
    build([RESULT], tmp_path / "page.html")

    page = (tmp_path / "page.html").read_text()
    for words in (
        "NOT LOSSLESS: leak 0.1", "lossy setting: x", "Evidence over tokens", "not rejected", "stay quiet",
        "80 tokens: 95.0% expected, 93.8% emitted", "0.1300", "stop strings", "5c0e", "http://a&lt;b&gt;", ">900<", "0.7000",
    ):  # fmt: skip
        assert words in page, words
    assert "http://a<b>" not in page
    assert page == render([RESULT])


def test_a_result_without_tokens_is_a_page_too():
    """The gate stopped it; several endpoints name those that are rejected."""
    none = Verification(
        endpoint="http://c", target="http://t", verdict=Verdict.NOT_LOSSLESS, diagnosis="by configuration (x)", position=None,
        tokens=0, log_e=0.0, tv_bound=1.0, tolerance=0.01, alpha=1e-3, tokens_needed=None, problems=(), findings=(),
        not_tested=(), sampling={}, draft=None, scope="s", facts={},
    )  # fmt: skip

    page = render([none, replace(none, path=((1, 0.0),), tokens=1)], ("http://c",))

    assert "by configuration (x)" in page
    assert "rejected: http://c." in page
