"""The pool never loses, doubles or shares a block."""

import pytest

from services.engine.block_pool import BlockPool, OutOfBlocks


def test_cover_gives_only_the_missing_blocks() -> None:
    pool = BlockPool(num_blocks=4, block_size=8)
    pool.cover(1, 8)
    first = list(pool.table(1))
    pool.cover(1, 9)
    assert len(first) == 1
    assert list(pool.table(1))[:1] == first
    assert (pool.num_used, pool.num_free, pool.num_owners) == (2, 2, 1)


def test_cover_without_enough_blocks_changes_nothing() -> None:
    pool = BlockPool(num_blocks=2, block_size=8)
    pool.cover(1, 8)
    with pytest.raises(OutOfBlocks):
        pool.cover(2, 17)
    assert (pool.num_used, list(pool.table(2))) == (1, [])
    pool.check()


def test_release_gives_everything_back_once() -> None:
    pool = BlockPool(num_blocks=3, block_size=4)
    pool.cover(7, 12)
    assert pool.release(7) == 3
    assert pool.release(7) == 0
    assert pool.num_free == 3
    pool.check()


def test_check_finds_a_block_with_two_owners() -> None:
    pool = BlockPool(num_blocks=3, block_size=4)
    pool.cover(1, 4)
    table = pool.table(1)
    assert isinstance(table, list)
    table.append(2)
    with pytest.raises(AssertionError, match="distinct"):
        pool.check()


@pytest.mark.parametrize(("num_blocks", "block_size"), [(0, 1), (1, 0)])
def test_pool_without_room_is_refused(num_blocks: int, block_size: int) -> None:
    with pytest.raises(ValueError):
        BlockPool(num_blocks, block_size)
