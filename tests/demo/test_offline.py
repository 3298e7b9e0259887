"""What the quickstart keeps of its offline evaluation, and that it keeps nothing unasked."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from specops.control.evaluate import evaluate
from specops.core.outcome import Arm, Finish
from specops.demo.offline import keep_samples
from specops.engines.client import Completion
from specops.settings import Settings
from specops.wiring import opened

T0 = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
PROMPTS = ("who", "where")


def _answer(text):
    return Completion(
        text=text, token_ids=(1,), finish=Finish.STOP, ttft_s=0.1, e2e_s=0.2, prompt_tokens=1, completion_tokens=1,
        acceptance=None,
    )  # fmt: skip


@pytest.mark.parametrize(("allowed", "kept"), [(True, [["who", "WHO"], ["where", "WHERE"]]), (False, [[], []])])
def test_the_candidates_answers_are_kept_where_the_setting_allows_it(tmp_path, allowed, kept):
    """Found by the request id of the outcome, for the days of the setting."""
    arms = {Arm.BASELINE: _answer, Arm.CANDIDATE: _answer}
    found = evaluate(PROMPTS, arms, {Arm.BASELINE: "rel-a", Arm.CANDIDATE: "rel-b"}, clock=lambda: T0)
    with opened(replace(Settings(data_dir=tmp_path / "data"), keep_samples=allowed)) as house:
        keep_samples(house, found, PROMPTS, {prompt: prompt.upper() for prompt in PROMPTS})
        with house.store.read() as unit:
            shown = [house.samples().show(unit, f"offline-{index:04d}") for index in range(2)]

    assert [[one.content.decode() for one in parts] for parts in shown] == kept
