"""Text streams: whole characters, stop strings, the same text however the tokens are cut."""

import pytest

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
