"""What prompt lookup would propose at each token of a finished text, recomputed by whoever only sees the text.

Called by `control.verify`; `decoding.lookup.NgramDraft` is the drafting itself. Proposals behind the first of a block are the
same lookup, as they are judged only where all before them were accepted.
"""

from collections.abc import Iterator, Sequence


def follow(text: Sequence[int], start: int, longest: int = 4, shortest: int = 2) -> Iterator[int | None]:
    """Yield, for each place from `start` on, what followed the latest earlier occurrence of the tokens before it.

    The longest match counts; None without one.
    """
    latest: dict[tuple[int, ...], int] = {}
    for at in range(len(text)):
        sizes = [size for size in range(longest, shortest - 1, -1) if size <= at]
        if at >= start:
            after = next((latest[key] for size in sizes if (key := tuple(text[at - size : at])) in latest), None)
            yield None if after is None else text[after]
        for size in sizes:
            latest[tuple(text[at - size : at])] = at
