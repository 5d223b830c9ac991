"""Equal hashes mean equal contents: everything that the contents depend on is in the hash, and nothing runs into its neighbour."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.engine.block_hash import BlockHasher

HASHER = BlockHasher(2, "model", "v1")


def test_hash_is_the_same_for_the_same_blocks() -> None:
    other = BlockHasher(2, "model", "v1")
    assert HASHER.block(HASHER.root(b"s"), [1, 2]) == other.block(other.root(b"s"), [1, 2])


def test_hash_depends_on_all_tokens_up_to_the_block() -> None:
    root = HASHER.root(b"")
    first, other = HASHER.block(root, [1, 2]), HASHER.block(root, [2, 1])
    assert len({first, other, HASHER.block(first, [1, 2]), HASHER.block(other, [1, 2])}) == 4


@pytest.mark.parametrize(
    "root",
    [
        BlockHasher(2, "model", "v1").root(b""),
        BlockHasher(2, "model", "v1").root(b"salt"),
        BlockHasher(2, "model", "v1").root(b"", adapter=b"salt"),
        BlockHasher(2, "model", "v2").root(b""),
        BlockHasher(2, "modelv1", "").root(b""),
        BlockHasher(2, "", "modelv1").root(b""),
        BlockHasher(2, "model", "v1").root(b"a", adapter=b"b"),
        BlockHasher(2, "model", "v1").root(b"ab"),
    ],
    ids=range(8),
)
def test_roots_of_different_worlds_differ(root: bytes) -> None:
    hashers = [BlockHasher(2, *names) for names in (("model", "v1"), ("model", "v2"), ("modelv1", ""), ("", "modelv1"))]
    worlds = [(b"", b""), (b"salt", b""), (b"", b"salt"), (b"a", b"b"), (b"ab", b"")]
    assert [hasher.root(*world) for hasher in hashers for world in worlds].count(root) == 1


def world(salt: bytes = b"", adapter: bytes = b"", model: str = "m", version: str = "v") -> bytes:
    return BlockHasher(2, model, version).root(salt, adapter)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (world(salt=b"", adapter=b"\1\0\0\0x"), world(salt=b"\5\0\0\0", adapter=b"x")),
        (world(adapter=b"", model="\1\0\0\0x"), world(adapter=b"\5\0\0\0", model="x")),
        (world(model="", version="\1\0\0\0v"), world(model="\5\0\0\0", version="v")),
        (world(version="v"), world(version="v\1\0\0\0")),
        (world(version=""), world(version="\0\0\0\0")),
    ],
    ids=["salt and adapter", "adapter and model", "model and version", "end", "nothing"],
)
def test_roots_of_names_that_look_like_the_length_of_their_neighbour_differ(one: bytes, other: bytes) -> None:
    assert one != other


@given(st.lists(st.integers(0, 2**32 - 1), min_size=4, max_size=8).filter(lambda tokens: len(tokens) % 2 == 0), st.binary(max_size=4))
def test_hash_differs_wherever_the_same_bytes_are_cut_into_salt_and_tokens(tokens: list[int], head: bytes) -> None:
    def hashed(num_in_salt: int) -> bytes:
        found = HASHER.root(head + struct.pack(f"<{num_in_salt}I", *tokens[:num_in_salt]))
        for begin in range(num_in_salt, len(tokens), 2):
            found = HASHER.block(found, tokens[begin : begin + 2])
        return found

    cuts = range(0, len(tokens) + 1, 2)
    assert len({hashed(cut) for cut in cuts}) == len(cuts)


@pytest.mark.parametrize(
    ("one", "other"),
    [([1, 23], [12, 3]), ([1, 0], [256, 0]), ([65_536, 0], [0, 1]), ([1, 5], [65_537, 5]), ([2**32 - 1, 0], [2**31 - 1, 0])],
)
def test_hash_tells_token_ids_apart_that_a_narrower_or_looser_form_confuses(one: list[int], other: list[int]) -> None:
    root = HASHER.root(b"")
    assert HASHER.block(root, one) != HASHER.block(root, other)
