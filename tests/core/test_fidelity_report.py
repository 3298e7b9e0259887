"""The value of a result: its words, its scope and when it expires; the gate; the n-gram draft recomputed."""

from dataclasses import replace

import pytest

from specops.core.fidelity import Verdict
from specops.core.fidelity_gate import dtype_of, inspect, speculation
from specops.core.fidelity_report import Agreement, Calibration, Verification, is_current, rejected_of, scope_of
from specops.core.ngram import follow
from specops.errors import IncompatibleRelease
from tests.calibration.tokens import FINE, rows

RESULT = Verification(
    endpoint="http://a", target="http://t", verdict=Verdict.LOSSLESS_WITHIN, diagnosis=None, position=None, tokens=6_000,
    log_e=0.5, tv_bound=0.008, tolerance=0.01, alpha=1e-3, tokens_needed=None, problems=(), findings=(), not_tested=("much",),
    sampling={"temperature": 1.0}, draft="draft", scope="s", facts={}, path=((6_000, 0.2),),
)  # fmt: skip
FACTS = {
    "version": "1", "dtype": "float32", "device": "cpu", "hardware": ["cpu", 0.5],
    "target": {"path": "/x", "weights_sha256": "a"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "LOSSLESS WITHIN 0.01 towards the draft (6000 tokens)"),
        ({"verdict": Verdict.NOT_LOSSLESS, "diagnosis": "leak 0.1", "position": 2}, "leak 0.1, at position 2 in the block"),
        ({"verdict": Verdict.INCONCLUSIVE, "tokens_needed": 900}, "about 900 more would show that it is within 0.01"),
        ({"verdict": Verdict.INCONCLUSIVE}, "no estimate"),
        ({"verdict": Verdict.INCONCLUSIVE, "draft": None}, "give --draft, --ngram or --surrogate"),
        ({"verdict": Verdict.ERROR, "problems": ("no mutant",)}, "ERROR: no mutant"),
    ],
)
def test_a_verdict_in_words(changes, words):
    """One line, with the way on."""
    assert words in replace(RESULT, **changes).words
    assert replace(RESULT, **changes).to_record()["verdict"] in words or "words" in RESULT.to_record()


def test_a_result_expires_when_anything_it_depends_on_changes():
    """Engine, dtype, hardware, sampling, weights; not the folder that the weights lie in."""
    scope = scope_of(FACTS, FACTS, {"temperature": 1.0})
    moved = FACTS | {"target": {"path": "/y", "weights_sha256": "a"}}
    changed = [FACTS | {key: "other"} for key in ("version", "dtype", "device")]
    changed.append(FACTS | {"target": {"path": "/x", "weights_sha256": "b"}})

    assert scope_of(moved, FACTS, {"temperature": 1.0}) == scope
    assert all(scope_of(one, FACTS, {"temperature": 1.0}) != scope for one in changed)
    assert scope_of(FACTS, FACTS, {"temperature": 0.7}) != scope
    payload = replace(RESULT, scope=scope).to_record()
    assert is_current(payload, scope)
    assert not is_current(payload, "another")
    assert not is_current(payload | {"verdict": "INCONCLUSIVE"}, scope)


def test_disagreement_counts_from_one_token_in_a_thousand():
    """Below it is rounding."""
    assert Agreement(compared=1_000, apart=1).finding is None
    assert "2 of 1000" in Agreement(compared=1_000, apart=2).finding
    assert Agreement().finding is None


def test_calibration_counts_the_most_likely_token():
    """Expected and emitted agree for a sound engine, bucket by bucket."""
    found = Calibration().fold(rows(1, 1_000, FINE["plain"])).fold(rows(2, 1_000, FINE["plain"]))

    assert sum(found.tokens) == 2_000
    assert sum(found.emitted) == pytest.approx(sum(found.expected), rel=0.1)


def test_of_several_endpoints_those_with_strong_evidence_are_rejected():
    """By the e-value at the end, not its peak."""
    strong = replace(RESULT, endpoint="http://b", path=((10, 12.0),))
    faded = replace(RESULT, endpoint="http://c", path=((10, 12.0), (20, 1.0)))

    assert rejected_of([RESULT, strong, faded, replace(RESULT, path=())], 1e-3) == ("http://b",)


def test_the_gate_reads_the_words_of_both_engines():
    """VLLM's configuration, the reference engine's facts, and one given by hand before both."""
    vllm = {"vllm_config": {"speculative_config": {"method": "ngram", "rejection_sample_method": "synthetic"}}}
    ours = {"method": "draft_model", "num_speculative_tokens": 4, "draft_sample_method": "probabilistic"}

    assert inspect(vllm, {}).lossy == ("rejection_sample_method: synthetic",)
    assert inspect(ours, {"method": None}).lossy == ()
    assert inspect(ours, {}, {"posterior_alpha": 0.3}).lossy == ("posterior_alpha: 0.3",)
    assert speculation({}) is None
    text = {"vllm_config": "model='m', speculative_config=SpeculativeConfig(method='ngram', num=3), dtype=torch.float16, x=1"}
    with pytest.raises(IncompatibleRelease, match="speculates itself"):
        inspect({}, text)
    assert [dtype_of(one) for one in (text, FACTS, {})] == ["float16", "float32", None]
    assert any("lossy settings were not looked for" in one for one in inspect({}, {}).remarks)
    assert not any("weights" in one for one in inspect(FACTS | ours, FACTS).remarks)


def test_prompt_lookup_is_recomputed_token_by_token():
    """The longest match, latest occurrence; None before anything repeats."""
    text = (1, 2, 3, 9, 1, 2, 3, 9, 5)

    assert list(follow(text, 4)) == [None, None, 3, 9, 1]
    assert list(follow((1, 2, 1, 2), 2)) == [None, None]
