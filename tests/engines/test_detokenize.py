"""Text streams: whole characters, stop strings, the same text however the tokens are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops.engines.detokenize import TextStream

TEXT = "naïve café 日本語 🙂 € end"


@pytest.mark.parametrize("block", [1, 2, 3, 7])
def test_pieces_join_to_the_text_and_never_split_a_character(tokenizer, block):
    """Byte-level tokens split characters; pieces do not."""
    ids, stream, pieces = tokenizer.encode(TEXT).ids, TextStream(decoder=tokenizer), []

    for at in range(0, len(ids), block):
        stream.push(ids[at : at + block])
        pieces.append(stream.take(final=False))
    pieces.append(stream.take(final=True))

    assert "".join(pieces) == TEXT
    assert not any("\ufffd" in piece for piece in pieces)


def test_an_unfinished_character_is_shown_at_the_end(tokenizer):
    """Nothing is lost when an answer stops inside a character."""
    ids = tokenizer.encode("🙂").ids
    stream = TextStream(decoder=tokenizer)

    stream.push(ids[:-1])

    assert stream.take(final=False) == ""
    assert "\ufffd" in stream.take(final=True)


@pytest.mark.parametrize("block", [1, 3, 50])
def test_a_stop_string_is_never_sent_not_even_in_part(tokenizer, block):
    """The earliest stop cuts the text, whatever the block."""
    ids, pieces = tokenizer.encode("one two three four").ids, []
    stream = TextStream(decoder=tokenizer, stops=("three", "four"))

    for at in range(0, len(ids), block):
        stream.push(ids[at : at + block])
        pieces.append(stream.take(final=stream.stopped_by is not None))
        assert "one two ".startswith("".join(pieces))

    assert ("".join(pieces), stream.stopped_by) == ("one two ", "three")
    assert len(stream.kept) < len(ids)


@pytest.mark.parametrize("block", [1, 3, 50])
def test_a_stop_string_can_be_kept(tokenizer, block):
    """The text ends right behind it, and nothing waits."""
    ids, pieces = tokenizer.encode("one two three four").ids, []
    stream = TextStream(decoder=tokenizer, stops=("three",), includes_stop=True)

    for at in range(0, len(ids), block):
        stream.push(ids[at : at + block])
        pieces.append(stream.take(final=stream.stopped_by is not None))

    assert ("".join(pieces), stream.stopped_by) == ("one two three", "three")


def test_text_that_begins_no_stop_string_is_not_held_back(tokenizer):
    """A long stop string delays only what could be its beginning."""
    stream = TextStream(decoder=tokenizer, stops=("e" * 40,))

    stream.push(tokenizer.encode("one two").ids)
    now = stream.take(final=False)
    stream.push(tokenizer.encode("ee").ids)
    later = stream.take(final=False)

    assert (now, later) == ("one two", "")
    assert stream.take(final=True) == "ee"


def test_a_stop_string_counts_where_it_ends(tokenizer):
    """Complete within `min_tokens` it does not count; begun there and completed later it does."""
    ids = tokenizer.encode("aabaab", add_special_tokens=False).ids
    letters = [tokenizer.token_to_id(letter) for letter in "aabaab"]
    assert tokenizer.decode(letters) == tokenizer.decode(ids)

    early = TextStream(decoder=tokenizer, stops=("ab",), min_tokens=3)
    across = TextStream(decoder=tokenizer, stops=("ab",), min_tokens=2)

    assert (early.push(letters), early.text) == (6, "aaba")
    assert (across.push(letters), across.text) == (3, "a")


def test_special_tokens_can_be_shown(tokenizer):
    """They have no text unless asked for."""
    eos = tokenizer.token_to_id("<eos>")
    shown, hidden = TextStream(decoder=tokenizer, skips_special=False), TextStream(decoder=tokenizer)

    for stream in (shown, hidden):
        stream.push([eos])

    assert (shown.take(final=True), hidden.take(final=True)) == ("<eos>", "")


class Pieces:
    """A decoder whose token ids index a list of texts, some of several letters."""

    texts = ("a", "b", "ab", "ba", "aab", "")

    def decode(self, ids, *, skip_special_tokens=True):
        """Join the texts."""
        return "".join(self.texts[i] for i in ids)


@given(
    blocks=st.lists(st.lists(st.integers(0, 5), max_size=4), max_size=8),
    stops=st.lists(st.text("ab", min_size=1, max_size=4), max_size=3).map(tuple),
    includes=st.booleans(),
)
def test_a_stream_says_what_one_look_at_the_text_says(blocks, stops, includes):
    """Pieces join to the text up to the first token that completes a stop string, cut at the earliest; tokens end there."""
    tokens = [token for block in blocks for token in block]
    stream, pieces = TextStream(decoder=Pieces(), stops=stops, includes_stop=includes), []

    for block in blocks:
        stream.push(block)
        pieces.append(stream.take(final=False))
    pieces.append(stream.take(final=True))

    text, kept = "", 0
    for kept, token in enumerate(tokens, start=1):  # noqa: B007  # how far it got
        text += Pieces.texts[token]
        if found := [(text.index(stop), stop) for stop in stops if stop in text]:
            at, stop = min(found)
            text = text[: at + (len(stop) if includes else 0)]
            break
    assert ("".join(pieces), len(stream.kept)) == (text, kept)
