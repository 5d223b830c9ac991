"""Equal hashes mean equal contents: everything that the contents depend on is in the hash, and nothing runs into its neighbour."""

import pytest

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
