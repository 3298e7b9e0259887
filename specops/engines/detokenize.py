"""From token ids to text that can be sent at once: never half a character, never a piece of a stop string.

One `TextStream` per request, fed with the tokens of each round. Streaming and non-streaming answers both pass through it, so
they say the same. Stop strings are looked for after every token, also inside a block of several, and cut text and tokens
there, as vLLM does.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

UNFINISHED = "\ufffd"  # what a decoder shows for bytes that are not (yet) a character


class Decoder(Protocol):
    """The one call of `tokenizers.Tokenizer` that is needed here."""

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Return the text of ids."""


@dataclass(slots=True, kw_only=True)
class TextStream:
    """Text of one growing answer.

    Attributes:
        stops: strings that end the answer.
        includes_stop: the stop string is part of the text.
        min_tokens: no stop string that is complete within this many tokens counts.
        skips_special: special tokens have no text.
        text: everything decoded so far, cut at a stop string.
        kept: token ids kept, the one that completed a stop string included.
        stopped_by: the stop string that was found.
    """

    decoder: Decoder
    stops: tuple[str, ...] = ()
    includes_stop: bool = False
    min_tokens: int = 0
    skips_special: bool = True
    text: str = ""
    kept: list[int] = field(default_factory=list)
    stopped_by: str | None = None
    _sent: int = 0
    _start: int = 0  # first token of the decoding window; it gives the context that spaces depend on
    _read: int = 0  # first token whose text is not in `text` yet

    def push(self, tokens: Iterable[int]) -> int:
        """Add tokens until a stop string is complete; return how many were kept."""
        before = len(self.kept)
        for token in tokens:
            if self.stopped_by is not None:
                break
            self.kept.append(token)
            self._decode(final=False)
        return len(self.kept) - before

    def take(self, *, final: bool) -> str:
        """Return the text that is safe to send and was not sent before; everything when `final`."""
        if final and self.stopped_by is None:
            self._decode(final=True)
        end = len(self.text) - (0 if final or self.includes_stop else self._doubtful())
        piece, self._sent = self.text[self._sent : end], end
        return piece

    def _doubtful(self) -> int:
        """Return the length of the longest end of the text that begins a stop string; it was not sent before."""
        tails = (self.text[at:] for at in range(max(self._sent, len(self.text) - self._longest() + 1), len(self.text)))
        return next((len(tail) for tail in tails if any(stop.startswith(tail) for stop in self.stops)), 0)

    def _longest(self) -> int:
        return max((len(stop) for stop in self.stops), default=1)

    def _decode(self, *, final: bool) -> None:
        shown = self._show(self.kept[self._start : self._read])
        whole = self._show(self.kept[self._start :])
        if not final and whole.endswith(UNFINISHED):
            return
        if len(whole) > len(shown):
            self._extend(whole[len(shown) :])
        self._start, self._read = self._read, len(self.kept)

    def _show(self, ids: Sequence[int]) -> str:
        return self.decoder.decode(ids, skip_special_tokens=self.skips_special)

    def _extend(self, piece: str) -> None:
        before = len(self.text)
        self.text += piece
        if len(self.kept) <= self.min_tokens:
            return
        # A stop string counts where its last character is new.
        found = [(at, stop) for stop in self.stops if (at := self.text.find(stop, max(0, before - len(stop) + 1))) >= 0]
        if found:
            at, self.stopped_by = min(found)
            self.text = self.text[: at + (len(self.stopped_by) if self.includes_stop else 0)]
