"""The KV blocks of one replica: every block is either free or owned by exactly one sequence."""

from collections.abc import Sequence


class OutOfBlocks(Exception):
    """Fewer blocks are free than were asked for; nothing was taken."""


class BlockPool:
    """Hands out block ids 0 .. num_blocks - 1. Used by the step thread only.

    Invariant after every call: free + owned = `num_blocks`, and no block has two owners.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        if num_blocks < 1 or block_size < 1:
            raise ValueError("a block pool needs at least one block of at least one token")
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._free = list(range(num_blocks - 1, -1, -1))
        self._tables: dict[int, list[int]] = {}

    @property
    def num_free(self) -> int:
        """Blocks that nobody owns."""
        return len(self._free)

    @property
    def num_used(self) -> int:
        """Blocks that sequences own."""
        return self.num_blocks - len(self._free)

    @property
    def num_owners(self) -> int:
        """Sequences that own at least one block."""
        return len(self._tables)

    def blocks_for(self, num_tokens: int) -> int:
        """How many blocks `num_tokens` positions need."""
        return -(-num_tokens // self.block_size)

    def table(self, owner: int) -> Sequence[int]:
        """The blocks of `owner` in the order of its positions; empty when it owns none. Valid until the next change of the owner."""
        return self._tables.get(owner, ())

    def cover(self, owner: int, num_tokens: int) -> None:
        """Give `owner` the blocks it lacks for `num_tokens` positions. OutOfBlocks (and no change) when not enough are free."""
        missing = self.blocks_for(num_tokens) - len(self.table(owner))
        if missing <= 0:
            return
        if missing > len(self._free):
            raise OutOfBlocks(f"{missing} blocks wanted, {len(self._free)} free")
        self._tables.setdefault(owner, []).extend(self._free.pop() for _ in range(missing))

    def release(self, owner: int) -> int:
        """Take back all blocks of `owner`; returns how many it had. An owner without blocks is no error."""
        blocks = self._tables.pop(owner, [])
        self._free.extend(reversed(blocks))
        return len(blocks)

    def check(self) -> None:
        """Raise AssertionError when the invariant is broken. For tests; costs time in proportion to the pool."""
        owned = [block for table in self._tables.values() for block in table]
        everything = sorted(owned + self._free)
        if everything != list(range(self.num_blocks)):
            raise AssertionError(f"{len(owned)} owned and {len(self._free)} free blocks are not {self.num_blocks} distinct blocks")
