"""The KV blocks of one replica: every block is free, cached (kept for its contents, used by nobody) or referenced by sequences."""

from collections import OrderedDict
from collections.abc import Callable, Sequence


class OutOfBlocks(Exception):
    """Fewer blocks are free or cached than were asked for; nothing was taken."""


class BlockPool:
    """Hands out block ids 0 .. num_blocks - 1. Used by the step thread only.

    Invariant after every call: free + cached + referenced = `num_blocks`, and a block's references are its places in tables (and pins).
    When no block is free the cached one that has been unused for longest is evicted, in constant time; `on_evict` is told before it is
    handed out. A table's last block counts as unused for longer than those before it, so that a prefix goes from its end.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        if num_blocks < 1 or block_size < 1:
            raise ValueError("a block pool needs at least one block of at least one token")
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.on_evict: Callable[[int], None] = lambda block: None
        self.num_evictions = 0
        """Since the start."""
        self._free = list(range(num_blocks - 1, -1, -1))
        self._cached: OrderedDict[int, None] = OrderedDict()
        self._num_references = [0] * num_blocks
        self._kept = [False] * num_blocks
        self._tables: dict[int, list[int]] = {}

    @property
    def num_free(self) -> int:
        """Blocks without contents worth keeping, which nobody uses."""
        return len(self._free)

    @property
    def num_cached(self) -> int:
        """Kept blocks that nobody uses; they can be had like free ones."""
        return len(self._cached)

    @property
    def num_available(self) -> int:
        """Blocks that can be had: free and cached."""
        return len(self._free) + len(self._cached)

    @property
    def num_used(self) -> int:
        """Blocks that sequences use."""
        return self.num_blocks - self.num_available

    @property
    def num_owners(self) -> int:
        """Sequences that use at least one block."""
        return len(self._tables)

    def blocks_for(self, num_tokens: int) -> int:
        """How many blocks `num_tokens` positions need."""
        return -(-num_tokens // self.block_size)

    def table(self, owner: int) -> Sequence[int]:
        """The blocks of `owner` in the order of its positions; empty when it has none. Valid until the next change of the owner."""
        return self._tables.get(owner, ())

    def num_users(self, block: int) -> int:
        """In how many tables (and pins) the block is."""
        return self._num_references[block]

    def is_cached(self, block: int) -> bool:
        """Whether the block is kept and used by nobody."""
        return block in self._cached

    def cover(self, owner: int, num_tokens: int) -> None:
        """Give `owner` the blocks it lacks for `num_tokens` positions. OutOfBlocks (and no change) when there are not enough."""
        missing = self.blocks_for(num_tokens) - len(self.table(owner))
        if missing <= 0:
            return
        if missing > self.num_available:
            raise OutOfBlocks(f"{missing} blocks wanted, {self.num_available} available")
        self._tables.setdefault(owner, []).extend(self._take() for _ in range(missing))

    def share(self, owner: int, blocks: Sequence[int]) -> None:
        """Append kept blocks to the table of `owner`, which must not write into them."""
        if blocks:
            for block in blocks:
                self.pin(block)
            self._tables.setdefault(owner, []).extend(blocks)

    def replace(self, owner: int, index: int, block: int) -> None:
        """Put a kept block of equal contents in the place of the one at `index`, which is given back."""
        table = self._tables[owner]
        self.pin(block)
        self.unpin(table[index])
        table[index] = block

    def pin(self, block: int) -> None:
        """Count one more user of a block that is kept or used, so that it cannot be evicted."""
        if self._num_references[block] == 0:
            del self._cached[block]
        self._num_references[block] += 1

    def unpin(self, block: int) -> None:
        """Count one user less; the last one leaves the block cached if it is kept, else free."""
        self._num_references[block] -= 1
        if self._num_references[block] == 0:
            if self._kept[block]:
                self._cached[block] = None
            else:
                self._free.append(block)

    def keep(self, block: int) -> None:
        """From now on the contents of a used block are worth keeping when nobody uses it."""
        self._kept[block] = True

    def drop(self, block: int) -> None:
        """The contents of a kept block are worth nothing any more."""
        self._kept[block] = False
        if block in self._cached:
            del self._cached[block]
            self._free.append(block)

    def release(self, owner: int) -> int:
        """Take back all blocks of `owner`; returns how many it had. An owner without blocks is no error."""
        blocks = self._tables.pop(owner, [])
        for block in reversed(blocks):
            self.unpin(block)
        return len(blocks)

    def kept(self) -> list[int]:
        """All kept blocks, used or not."""
        return [block for block, kept in enumerate(self._kept) if kept]

    def check(self) -> None:
        """Raise AssertionError when the invariant is broken. For tests; costs time in proportion to the pool."""
        counted = [0] * self.num_blocks
        for block in (block for table in self._tables.values() for block in table):
            counted[block] += 1
        if counted != self._num_references:
            raise AssertionError("references are not the places in tables: a block has a user too many or too few")
        unused = sorted([*self._free, *self._cached])
        if unused != [block for block in range(self.num_blocks) if not counted[block]]:
            raise AssertionError(f"{self.num_free} free and {self.num_cached} cached blocks are not the distinct unused ones")
        if any(self._kept[block] for block in self._free) or not all(self._kept[block] for block in self._cached):
            raise AssertionError("a free block is kept, or a cached one is not")

    def _take(self) -> int:
        if self._free:
            block = self._free.pop()
        else:
            block, _ = self._cached.popitem(last=False)
            self._kept[block] = False
            self.num_evictions += 1
            self.on_evict(block)
        self._num_references[block] = 1
        return block
