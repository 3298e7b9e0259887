"""Every key that a policy file may hold, with its kind, range and meaning: the one table behind parser, schema and reference.

`core.policy` and `core.check_file` read values through it, `core.policy_schema` prints it for editors, tests compare it with
the reference page. Whether one value alone is right follows from its kind (`core.policy_kinds`); how values go together is for
the readers.
"""

from specops.core.check import Against, By, Estimand, Metric, OnNoData
from specops.core.guards import PINNED_HIGH, PINNED_LOW
from specops.core.ladder import Rung
from specops.core.policy_kinds import (
    REQUIRED,
    SHARE,
    Choice,
    Duration,
    Field,
    Flag,
    Listing,
    Number,
    ShareOrTime,
    Table,
    Text,
    Whole,
)

MAX_ALPHA = 0.2
MIN_ARL, MAX_ARL = 100.0, 1e12
MAX_SECONDS = 86_400.0
ERROR_CLASSES = (
    "engine_unreachable", "engine_5xx", "malformed_stream", "broken_stream", "timeout", "empty_answer", "nan_text",
)  # fmt: skip
ALPHA = Number(high=MAX_ALPHA, why="at 0 nothing fails, at 1 everything does")
RUN_LENGTH = Number(MIN_ARL, MAX_ARL, why="requests between false alarms")
FATAL = (*ERROR_CLASSES, PINNED_LOW, PINNED_HIGH)

_PASS = Number(low=0.0, high=100.0, why="a share or a difference below 1, a speed-up below 100")
EXCEEDANCE_FIELDS = {
    "limit_s": Field(Number(high=MAX_SECONDS, why="seconds"), REQUIRED, "a slower request counts as slow, in seconds"),
    "share": Field(SHARE, None, "allowed share of slow requests; 0.05 is a p95; not with a comparison"),
}
STRATA_FIELDS = {
    "by": Field(Choice(tuple(By)), REQUIRED, "what tells requests apart"),
    "edges": Field(Listing(Whole(low=0)), None, "upper ends of the strata but the last, rising; not for kind"),
    "limits": Field(Listing(SHARE), None, "the limit of each stratum, where they differ; pass_at keeps its distance"),
}
ONLY_FIELDS = {
    "in_flight_above": Field(Whole(low=0), None, "only requests that found more than this many in flight"),
    "in_flight_at_most": Field(Whole(), None, "only requests that found at most this many in flight"),
}
LOAD_FIELDS = {
    "in_flight": Field(Whole(), REQUIRED, "upper end of the load bucket, in requests in flight"),
    "draft_s": Field(
        Number(high=MAX_SECONDS, low_in=True, why="seconds"), REQUIRED, "one draft pass for one token, in seconds"
    ),
    "target_s": Field(Number(high=MAX_SECONDS, why="seconds"), REQUIRED, "one target pass without a draft, in seconds"),
    "verify_s": Field(Number(high=MAX_SECONDS, why="seconds"), REQUIRED, "one target pass over k + 1 tokens, in seconds"),
}
LOSSLESS_FIELDS = {
    "tolerance": Field(Number(why="total variation per token"), 0.01, "largest tolerance a verification may have had"),
    "temperature": Field(Number(high=10.0, why="greedy tokens are looked at in every job"), 1.0, "production's temperature"),
    "top_p": Field(SHARE, 1.0, "production's top_p"),
    "top_k": Field(Whole(low=0), 0, "production's top_k; 0 keeps all"),
    "min_p": Field(Number(low_in=True), 0.0, "production's min_p"),
}
BREAK_EVEN_FIELDS = {
    "k": Field(Whole(), REQUIRED, "drafted tokens per round"),
    "acceptance_rate": Field(SHARE, REQUIRED, "accepted / drafted tokens that this draft is known for"),
    "loads": Field(Listing(Table(LOAD_FIELDS)), REQUIRED, "measured costs per load bucket, rising in in_flight"),
}
SPECULATE_FIELDS = {
    "below_in_flight": Field(Whole(), None, "speculate only below this many requests in flight"),
    "break_even": Field(Table(BREAK_EVEN_FIELDS), None, "measured costs, from which that number follows"),
}
CHECK_FIELDS = {
    "name": Field(Text(is_needed=True), REQUIRED, "unique in the policy"),
    "metric": Field(Choice(tuple(Metric), why="nobody emits another"), REQUIRED, "what one request contributes"),
    "arm": Field(Choice(("candidate",)), "candidate", "the arm that is judged"),
    "estimand": Field(
        Choice(tuple(Estimand)), Estimand.MEAN_OF_REQUESTS.value, "what is estimated; only a mean of requests decides"
    ),
    "against": Field(Choice(tuple(Against)), None, "a fixed limit, the concurrent baseline, or the same request on both arms"),
    "at_least": Field(
        Number(high=100.0, why="a rate below 1, or a speed-up below 100"), None, "the limit: fine is at least this"
    ),
    "at_most": Field(
        ShareOrTime(EXCEEDANCE_FIELDS), None, "the limit: fine is at most this share; for a time {limit_s, share}"
    ),
    "margin": Field(
        Number(low_in=True, why="a difference of shares"),
        None,
        "allowed worsening against the baseline, as a difference of shares",
    ),
    "ratio": Field(
        Number(low=1.0, high=100.0, low_in=True, why="1: no worse at all"),
        None,
        "allowed ratio of the candidate's share of slow answers or errors to the baseline's of the same time",
    ),
    "pass_at": Field(_PASS, None, "promotion needs proof of better than this"),
    "pass_margin": Field(_PASS, None, "the same, as a distance from the limit"),
    "alpha": Field(ALPHA, None, "error level of this check; the policy's"),
    "weight": Field(Number(high_in=True, why="it is a share of alpha"), None, "share of alpha and of the run length"),
    "min_requests": Field(Whole(), 20, "requests with the metric before the check may pass"),
    "arl_requests": Field(RUN_LENGTH, None, "mean requests between false alarms; the policy's"),
    "max_wait": Field(Duration(), None, "time after which undecided becomes INCONCLUSIVE"),
    "on_no_data": Field(Choice(tuple(OnNoData)), OnNoData.HOLD.value, "what silence means: wait, or fail"),
    "on_fail": Field(Choice(tuple(Rung)), None, "what a failure asks for; roll_back unless said otherwise"),
    "precursor": Field(Flag(), False, "alerts early and never decides"),
    "only": Field(Table(ONLY_FIELDS), None, "the load at which the check holds"),
    "strata": Field(Table(STRATA_FIELDS), None, "judge groups of requests apart, so that a change of mix is no alarm"),
    "owner": Field(Text(is_needed=True), REQUIRED, "who is called"),
    "source": Field(Text(), "", "where the threshold comes from"),
    "description": Field(Text(), "", "one sentence"),
}
SETTLE_S = 30.0  # 1000 tokens at 40 a second end in 25 s
POLICY_FIELDS = {
    "name": Field(Text(is_needed=True), REQUIRED, "handle for people"),
    "version": Field(Whole(), 1, "yours to count"),
    "description": Field(Text(), "", "one sentence"),
    "alpha": Field(ALPHA, 0.01, "probability of failing a healthy candidate on trial, all checks"),
    "arl_requests": Field(RUN_LENGTH, 100_000.0, "run length, all checks"),
    "max_wait": Field(Duration(), None, "time after which an undecided trial is INCONCLUSIVE; a check may say another"),
    "settle": Field(Duration(is_zero_fine=True), SETTLE_S, "longest usual answer: so long nothing is proven of a new trial"),
    "fatal": Field(Table({name: Field(Whole(), None, f"count of {name} that ends the rollout") for name in FATAL}), None,
                   "what needs no statistics, with the count at which it acts"),
    "speculate": Field(Table(SPECULATE_FIELDS), None, "speculate only below so many requests in flight"),
    "lossless": Field(Table(LOSSLESS_FIELDS), None, "a rollout needs a verification of the candidate that is in force"),
    "allow_lossy": Field(Listing(Text(is_needed=True)), (), "lossy acceptance settings that may serve, by name"),
}  # fmt: skip
