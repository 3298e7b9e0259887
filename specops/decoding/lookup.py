"""Stage 1 of 5, draft, without weights: what followed the same words before, and what a recorded draft proposed.

Input, output and invariant are those of `draft`. A lookup chooses without chance, so its law is one-hot and its proposals are
right or wrong at the target's mercy alone. Called by `loop`. Test: tests/decoding/test_lookup.py.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specops.decoding.draft import NOTHING, Proposal, check_k
from specops.decoding.request import Request
from specops.decoding.sampling import Chance
from specops.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class NgramDraft:
    """Prompt lookup: what followed the latest earlier occurrence of the last n tokens, the longest n first.

    Args:
        k: proposals per round, >= 1.
        max_n: longest suffix that is looked up.
        min_n: shortest, >= 1.
    """

    k: int
    max_n: int = 4
    min_n: int = 2

    def __post_init__(self) -> None:
        """Check k and the lengths."""
        check_k(self.k)
        if not 1 <= self.min_n <= self.max_n:
            raise InvalidInput(f"n-gram lengths are min_n {self.min_n}, max_n {self.max_n}, expected 1 <= min_n <= max_n")

    def open(self, request: Request, limit: int) -> "NgramDrafting":  # noqa: ARG002  # the protocol's signature
        """Start with an empty index."""
        return NgramDrafting(self)


class NgramDrafting:
    """Proposals from an index of the request's own n-grams, grown as tokens are committed."""

    def __init__(self, draft: NgramDraft) -> None:
        self.sizes = range(draft.max_n, draft.min_n - 1, -1)
        self.latest: dict[tuple[int, ...], int] = {}  # n-gram -> position after its latest occurrence
        self.indexed = 0

    def propose(self, committed: Sequence[int], k: int, chance: Chance) -> Proposal:  # noqa: ARG002  # no chance in a lookup
        """Propose exactly k tokens, or none without a match.

        Where the match reaches the end of the text, copying goes on in the proposal itself, as for a repeated line.
        """
        self._index(committed)
        end = len(committed)
        start = next((at for n in self.sizes if (at := self.latest.get(tuple(committed[max(end - n, 0) :]))) is not None), None)
        if start is None or k < 1:
            return NOTHING
        period = end - start
        block = [committed[start + i % period] for i in range(k)]
        return Proposal(tokens=tuple(block))

    def _index(self, committed: Sequence[int]) -> None:
        for after in range(max(self.indexed, 1), len(committed)):
            for n in self.sizes:
                if n <= after:
                    self.latest[tuple(committed[after - n : after])] = after
        self.indexed = max(len(committed), 1)

    def rewind(self, length: int) -> None:
        """Do nothing: only committed tokens are ever indexed."""


@dataclass(frozen=True, slots=True)
class SuffixDraft:
    """The most frequent continuation of the longest suffix that occurred before; long where the text repeats itself.

    After SuffixDecoding (arXiv 2411.04975), with vLLM's settings, on the request's own tokens alone: no text of one request
    is ever proposed to another.

    Args:
        k: most proposals per round, >= 1.
        max_depth: longest suffix that is looked up, >= 1 (`suffix_decoding_max_tree_depth`).
        factor: proposals per matched token, > 0 (`suffix_decoding_max_spec_factor`).
        min_prob: a proposal ends where its estimated probability is less, in [0, 1] (`suffix_decoding_min_token_prob`).
    """

    k: int
    max_depth: int = 24
    factor: float = 1.0
    min_prob: float = 0.1

    def __post_init__(self) -> None:
        """Check k and the settings."""
        check_k(self.k)
        if self.max_depth < 1 or self.factor <= 0 or not 0 <= self.min_prob <= 1:
            got = f"max_depth {self.max_depth}, factor {self.factor}, min_prob {self.min_prob}"
            raise InvalidInput(f"suffix settings are {got}, expected max_depth >= 1, factor > 0, min_prob in [0, 1]")

    def open(self, request: Request, limit: int) -> "SuffixDrafting":  # noqa: ARG002  # the protocol's signature
        """Start with an empty index."""
        return SuffixDrafting(self)


class SuffixDrafting:
    """How often each token followed each suffix of up to `max_depth` tokens, counted as tokens are committed."""

    def __init__(self, draft: SuffixDraft) -> None:
        self.draft = draft
        self.followers: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
        self.indexed = 1

    def propose(self, committed: Sequence[int], k: int, chance: Chance) -> Proposal:  # noqa: ARG002  # no chance in a lookup
        """Propose up to k tokens: as many as the match is long, times the factor, while they stay likely enough."""
        self._index(committed)
        match = self._match(committed)
        text, prob, tokens = [*committed[len(committed) - match :]], 1.0, list[int]()
        while match and len(tokens) < min(k, int(match * self.draft.factor)):
            # the longest known suffix of match and proposals; each was seen with a follower, but not with every one
            known = next(c for n in range(len(text)) if (c := self.followers.get(tuple(text[n:]))) is not None)
            token, count = known.most_common(1)[0]
            prob *= count / known.total()
            if prob < self.draft.min_prob:
                break
            tokens.append(token)
            text = [*text, token][-self.draft.max_depth :]
        return Proposal(tokens=tuple(tokens)) if tokens else NOTHING

    def _match(self, committed: Sequence[int]) -> int:
        """Return the length of the longest suffix with a known follower."""
        end = len(committed)
        return next(
            (n for n in range(min(self.draft.max_depth, end), 0, -1) if tuple(committed[end - n :]) in self.followers), 0
        )

    def _index(self, committed: Sequence[int]) -> None:
        for at in range(self.indexed, len(committed)):
            for n in range(1, min(self.draft.max_depth, at) + 1):
                self.followers[tuple(committed[at - n : at])][committed[at]] += 1
        self.indexed = max(len(committed), 1)

    def rewind(self, length: int) -> None:
        """Do nothing: only committed tokens are ever counted."""


@dataclass(frozen=True, slots=True)
class ReplayDraft:
    """What a recorded draft proposed, as long as the text is the recorded one; nothing beyond.

    Without a law the recorded tokens are proposed as they are, one-hot. With one they are drawn from it anew: the recorded seed
    then gives the recorded tokens, and any other seed is exact too; a draw that departs from the record ends the proposal.

    Args:
        k: most proposals per round, >= 1.
        text: the recorded request's tokens, prompt included.
        proposals: what was proposed, by the number of tokens that were committed before.
    """

    k: int
    text: tuple[int, ...]
    proposals: Mapping[int, Proposal]

    def __post_init__(self) -> None:
        """Check k."""
        check_k(self.k)

    def open(self, request: Request, limit: int) -> "ReplayDraft":  # noqa: ARG002  # the protocol's signature
        """Start; a replay remembers nothing."""
        return self

    def propose(self, committed: Sequence[int], k: int, chance: Chance) -> Proposal:
        """Propose the first k recorded tokens, if the text so far is the recorded one."""
        recorded = self.proposals.get(len(committed), NOTHING)
        if tuple(committed) != self.text[: len(committed)]:
            return NOTHING
        if recorded.law is None:
            return Proposal(tokens=recorded.tokens[:k])
        tokens: list[int] = []
        for row, token in zip(recorded.law[:k], recorded.tokens, strict=False):
            tokens.append(chance.pick(row))
            if tokens[-1] != token:
                break
        return Proposal(tokens=tuple(tokens), law=recorded.law[: len(tokens)])

    def rewind(self, length: int) -> None:
        """Do nothing: a replay remembers nothing."""
