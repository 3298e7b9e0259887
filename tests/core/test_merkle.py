"""The Merkle tree against published vectors, by hand, and against brute force."""

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specops.core import merkle
from specops.errors import InvalidRecord

# The eight leaves and roots of certificate-transparency's reference tests (merkletree/merkle_tree_test.cc).
LEAVES = [bytes.fromhex(h) for h in (
    "", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f",
)]  # fmt: skip
ROOTS = (
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
)
HASHES = [merkle.leaf_hash(leaf) for leaf in LEAVES]
leaves = st.lists(st.binary(max_size=3).map(merkle.leaf_hash), min_size=1, max_size=40)


def brute(hashes):
    """Return the root straight from the definition in RFC 6962 section 2.1."""
    if not hashes:
        return hashlib.sha256(b"").digest()
    if len(hashes) == 1:
        return hashes[0]
    k = 1
    while k * 2 < len(hashes):
        k *= 2
    return hashlib.sha256(b"\x01" + brute(hashes[:k]) + brute(hashes[k:])).digest()


def test_the_empty_tree_has_the_hash_of_nothing_as_root():
    """RFC 6962: MTH({}) = SHA-256()."""
    assert merkle.Frontier().root.hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.mark.parametrize("size", range(1, 9))
def test_roots_equal_the_published_vectors(size):
    """Every prefix of the eight reference leaves has the published root."""
    assert merkle.root_of(HASHES[:size]).hex() == ROOTS[size - 1]


def test_a_published_inclusion_proof_is_what_we_make():
    """The reference path of leaf 5 in the tree of 8 (its leaf 6, counted from 1)."""
    proof = merkle.inclusion_proof(HASHES, 5)
    assert [p.hex() for p in proof] == [
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ]


def test_a_published_consistency_proof_is_what_we_make():
    """The reference proof from size 6 to size 8."""
    proof = merkle.consistency_proof(HASHES, 6)
    assert [p.hex() for p in proof] == [
        "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ]


@settings(max_examples=60, deadline=None)
@given(leaves)
def test_the_frontier_gives_the_root_of_the_definition(hashes):
    """Appending one by one equals the recursive definition, and the frontier survives its bytes."""
    frontier = merkle.Frontier()
    for leaf in hashes:
        frontier = frontier.append(leaf)

    assert frontier.root == brute(hashes)
    assert merkle.Frontier.from_bytes(frontier.size, frontier.to_bytes()) == frontier


@settings(max_examples=60, deadline=None)
@given(leaves, st.data())
def test_an_inclusion_proof_holds_for_its_leaf_and_for_nothing_else(hashes, data):
    """Another leaf, index, size or a changed or cut proof does not verify."""
    index = data.draw(st.integers(0, len(hashes) - 1))
    size, root = len(hashes), brute(hashes)
    proof = merkle.inclusion_proof(hashes, index)

    assert merkle.verify_inclusion(hashes[index], index, size, proof, root)
    assert not merkle.verify_inclusion(merkle.leaf_hash(b"other"), index, size, proof, root)
    assert not merkle.verify_inclusion(hashes[index], size, size, proof, root)
    assert not merkle.verify_inclusion(hashes[index], index, size, (*proof, root), root)
    if proof:
        assert not merkle.verify_inclusion(hashes[index], index, size, proof[:-1], root)
        assert not merkle.verify_inclusion(hashes[index], index, size, (bytes(32), *proof[1:]), root)


@settings(max_examples=100, deadline=None)
@given(leaves, st.data())
def test_a_consistency_proof_holds_for_a_prefix_and_for_nothing_else(hashes, data):
    """A log whose past was rewritten, or a bent proof, does not verify."""
    old, size, root = data.draw(st.integers(0, len(hashes))), len(hashes), brute(hashes)
    proof = merkle.consistency_proof(hashes, old)

    assert merkle.verify_consistency(old, size, brute(hashes[:old]), root, proof)
    assert not merkle.verify_consistency(old, size, merkle.leaf_hash(b"other"), root, proof)
    assert not merkle.verify_consistency(size + 1, size, root, root, proof)
    if old > 0:
        assert not merkle.verify_consistency(old, size, brute(hashes[:old]), merkle.leaf_hash(b"other"), proof)
        assert not merkle.verify_consistency(old, size, brute(hashes[:old]), root, (*proof, bytes(32)))
    if proof:
        assert not merkle.verify_consistency(old, size, brute(hashes[:old]), root, proof[:-1])
        assert not merkle.verify_consistency(old, size, brute(hashes[:old]), root, ())


def test_questions_about_leaves_that_are_not_there_are_refused():
    """A proof for a leaf or a size outside the tree, and a frontier of the wrong length, name what is wrong."""
    with pytest.raises(InvalidRecord, match="no leaf 8 in a tree of 8"):
        merkle.inclusion_proof(HASHES, 8)
    with pytest.raises(InvalidRecord, match="old size 9"):
        merkle.consistency_proof(HASHES, 9)
    with pytest.raises(InvalidRecord, match="needs 2 hashes"):
        merkle.Frontier.from_bytes(3, bytes(32))


@settings(max_examples=60, deadline=None)
@given(leaves, st.data())
def test_ranges_are_hashed_in_one_pass_as_alone(hashes, data):
    """Proof hashes come in the order asked for, from a stream that is read once and never further than needed."""
    index, size = data.draw(st.integers(0, len(hashes) - 1)), len(hashes)
    ranges = merkle.inclusion_ranges(size, index)
    assert merkle.roots_of(iter(hashes), ranges) == tuple(brute(hashes[first:end]) for first, end in ranges)


def test_a_stream_that_ends_early_is_named():
    """A log shorter than the size asked for has no proof."""
    with pytest.raises(InvalidRecord, match="end before number 8"):
        merkle.roots_of(HASHES, [(0, 4), (4, 9)])


@given(leaves)
def test_growth_is_the_frontier_in_place(hashes):
    """Root and value agree with the immutable one."""
    growth, frontier = merkle.Growth(), merkle.Frontier()
    assert growth.root == frontier.root
    for leaf in hashes:
        growth.append(leaf)
        frontier = frontier.append(leaf)
    assert (growth.root, growth.frontier()) == (frontier.root, frontier)
