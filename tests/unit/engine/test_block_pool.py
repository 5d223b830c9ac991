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


@pytest.mark.parametrize("stolen", [0, 2])
def test_check_finds_a_block_with_a_user_too_many(stolen: int) -> None:
    pool = BlockPool(num_blocks=3, block_size=4)
    pool.cover(1, 4)
    table = pool.table(1)
    assert isinstance(table, list)
    table.append(stolen)
    with pytest.raises(AssertionError, match="references"):
        pool.check()


def pool_with_kept(*owners: int) -> BlockPool:
    """Four blocks of two tokens; each owner has two of its own, which are worth keeping."""
    pool = BlockPool(num_blocks=4, block_size=2)
    for owner in owners:
        pool.cover(owner, 4)
        for block in pool.table(owner):
            pool.keep(block)
    return pool


def test_released_kept_blocks_are_cached_and_can_be_had() -> None:
    pool = pool_with_kept(1)
    pool.release(1)
    assert (pool.num_free, pool.num_cached, pool.num_used, pool.num_available) == (2, 2, 0, 4)
    pool.cover(2, 8)
    assert (pool.num_cached, pool.num_used, pool.num_evictions) == (0, 4, 2)
    pool.check()


def test_eviction_takes_the_end_of_the_table_that_was_released_first() -> None:
    pool, evicted = pool_with_kept(1, 2), list[int]()
    pool.on_evict = evicted.append
    first, second = list(pool.table(1)), list(pool.table(2))
    pool.release(1)
    pool.release(2)
    pool.cover(3, 8)
    assert evicted == [*reversed(first), *reversed(second)]


def test_shared_block_stays_until_its_last_user_goes() -> None:
    pool = pool_with_kept(1)
    blocks = list(pool.table(1))
    pool.share(2, blocks[:1])
    pool.release(1)
    assert (pool.is_cached(blocks[0]), pool.is_cached(blocks[1])) == (False, True)
    pool.check()
    pool.release(2)
    assert pool.num_cached == 2
    pool.check()


def test_used_again_block_is_evicted_last() -> None:
    pool, evicted = pool_with_kept(1, 2), list[int]()
    pool.on_evict = evicted.append
    first = list(pool.table(1))
    pool.release(1)
    pool.release(2)
    pool.share(3, first)
    pool.release(3)
    pool.cover(4, 8)
    assert evicted[-2:] == list(reversed(first))


def test_replaced_block_is_free_again() -> None:
    pool = pool_with_kept(1)
    pool.cover(2, 2)
    pool.replace(2, 0, pool.table(1)[0])
    assert list(pool.table(2)) == list(pool.table(1))[:1]
    assert pool.num_free == 2
    pool.check()


def test_dropped_block_is_worth_nothing() -> None:
    pool = pool_with_kept(1)
    used, cached = list(pool.table(1))
    pool.share(2, [used])
    pool.release(1)
    pool.drop(cached)
    pool.drop(used)
    assert (pool.num_cached, pool.num_free) == (0, 3)
    pool.release(2)
    assert (pool.num_cached, pool.num_free) == (0, 4)
    pool.check()


def test_pinned_block_is_not_evicted() -> None:
    pool, evicted = pool_with_kept(1), list[int]()
    pool.on_evict = evicted.append
    head, tail = list(pool.table(1))
    pool.release(1)
    pool.pin(tail)
    pool.cover(2, 6)
    with pytest.raises(OutOfBlocks):
        pool.cover(2, 7)
    assert evicted == [head]
    pool.unpin(tail)
    pool.check()


@pytest.mark.parametrize(("num_blocks", "block_size"), [(0, 1), (1, 0)])
def test_pool_without_room_is_refused(num_blocks: int, block_size: int) -> None:
    with pytest.raises(ValueError):
        BlockPool(num_blocks, block_size)
