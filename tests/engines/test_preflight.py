"""What preflight refuses, one change at a time."""

import json
import struct

import pytest
import tokenizers

from specops.engines.preflight import Expected, Severity, check_endpoint, check_folders, refuse
from specops.engines.tokenizer import tokenizer_digest
from specops.engines.weights import read_header, weights_digest
from specops.errors import IncompatibleRelease, InvalidWeights


def refused(target, draft):
    """Return the refusing findings by name."""
    return {finding.what: finding for finding in check_folders(target, draft) if finding.severity is Severity.REFUSE}


def test_a_matching_pair_passes(pair):
    """Every check is reported, none refuses."""
    findings = check_folders(*pair)

    assert {finding.severity for finding in findings} == {Severity.OK}
    assert len(findings) == 5
    refuse(findings)


def test_one_changed_merge_is_found_and_shown(fresh_pair, rewrite):
    """Same size, same tokens, other merges: vLLM would start; here the first differing entry is named."""
    target, draft = fresh_pair
    rewrite(draft / "tokenizer.json", lambda raw: raw["model"]["merges"].reverse())

    finding = refused(target, draft)["tokenizer identity"]

    assert "merge 0" in finding.got
    with pytest.raises(IncompatibleRelease, match="use a draft trained with the target's tokenizer"):
        refuse([finding])


def test_one_added_token_is_found(fresh_pair):
    """An added token is content too."""
    target, draft = fresh_pair
    tokenizer = tokenizers.Tokenizer.from_file(str(draft / "tokenizer.json"))
    tokenizer.add_special_tokens(["<tool>"])
    tokenizer.save(str(draft / "tokenizer.json"))

    finding = refused(target, draft)["tokenizer identity"]

    assert "<tool>" in finding.got
    assert "absent" in finding.expected


def test_another_vocabulary_size_is_refused(fresh_pair, rewrite):
    """Sizes must be equal, not just close."""
    target, draft = fresh_pair
    rewrite(draft / "config.json", lambda raw: raw.update(vocab_size=raw["vocab_size"] + 64))

    assert "vocabulary size" in refused(target, draft)


def test_a_shorter_draft_context_is_a_warning(fresh_pair, rewrite):
    """It costs speed, not text."""
    target, draft = fresh_pair
    rewrite(draft / "config.json", lambda raw: raw.update(max_position_embeddings=64))

    (warned,) = [finding for finding in check_folders(target, draft) if finding.severity is Severity.WARN]

    assert (warned.what, warned.got, warned.expected) == ("context length", "draft 64", "at least target 256")


def test_only_pickle_weights_are_refused(fresh_pair):
    """A pickle can run code, so it is not even opened."""
    target, draft = fresh_pair
    (draft / "model.safetensors").rename(draft / "pytorch_model.bin")

    assert "only pickle weights" in refused(target, draft)["draft weights"].got
    with pytest.raises(InvalidWeights, match="convert it to safetensors"):
        refuse(check_folders(target, draft))


def header(length=None, **tensors):
    """Return a safetensors prefix and header."""
    raw = json.dumps(tensors).encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw


def tensor(begin, end, shape):
    """Return a header entry."""
    return {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\1\2", "too short"),
        (header(2**60), "header length says"),
        (struct.pack("<Q", 4) + b"nope", "not JSON"),
        (header(a=tensor(0, 8, [2])), "end at byte 8, data has 0"),
        (header(a=tensor(0, 8, [3])) + bytes(8), "needs 12 bytes"),
        (header(a=tensor(0, 8, [2]), b=tensor(4, 12, [2])) + bytes(12), "overlaps"),
        (header(a=tensor(0, 4, [1]), b=tensor(8, 12, [1])) + bytes(12), "hole"),
        (header(a={"dtype": "F99", "shape": [], "data_offsets": [0, 4]}) + bytes(4), "unknown dtype"),
        (header(a={"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}) + bytes(4), "has shape"),
    ],
)
def test_a_corrupt_header_is_refused(tmp_path, content, why):
    """Length, JSON, offsets, overlaps and holes are checked before anybody trusts them."""
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)

    with pytest.raises(InvalidWeights, match=why):
        read_header(path)


def test_the_digest_speaks_of_content_not_of_bytes(fresh_pair, rewrite):
    """White space, key order and the old merge spelling do not change a tokenizer's digest; a flag does."""
    target, draft = fresh_pair
    before = tokenizer_digest(target)

    rewrite(draft / "tokenizer.json", lambda raw: raw["model"].update(merges=[" ".join(two) for two in raw["model"]["merges"]]))
    assert tokenizer_digest(draft) == before

    rewrite(draft / "tokenizer.json", lambda raw: raw["added_tokens"][0].update(special=False))
    assert tokenizer_digest(draft) != before


def test_an_endpoint_is_compared_with_the_release(speculative, pair):
    """What runs must be what was registered, by digest."""
    expected = {
        "target_weights": weights_digest(pair[0]), "draft_weights": weights_digest(pair[1]),
        "tokenizer": tokenizer_digest(pair[0]),
        "method": "draft_model", "num_speculative_tokens": 3,
    }  # fmt: skip

    right = check_endpoint(speculative.base_url, Expected(**expected))
    wrong = check_endpoint(
        speculative.base_url, Expected(**expected | {"num_speculative_tokens": 4, "draft_weights": "0" * 64})
    )

    assert {finding.severity for finding in right} == {Severity.OK}
    assert {f.what for f in wrong if f.severity is Severity.REFUSE} == {"running k", "running draft"}


def test_an_endpoint_that_is_not_there_is_a_finding():
    """Preflight reports, it does not crash."""
    (finding,) = check_endpoint("http://127.0.0.1:9", Expected())

    assert (finding.severity, finding.what) == (Severity.REFUSE, "endpoint")
