"""KV blocks of sequences: finds what is computed already, gives out the rest, and keeps full blocks for those who come later.

A block is indexed when it is full and the step that filled its last position has succeeded; from then on nobody writes into it. Of two
sequences that computed equal blocks the second one goes on with the block of the first. So whoever uses a block uses all indexed ones
before it, and the pool evicts a prefix from its end.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from services.engine.block_hash import BlockHasher
from services.engine.block_pool import BlockPool, OutOfBlocks
from services.engine.kv_events import KvEvent
from services.engine.prefix_index import PrefixIndex, num_common
from services.engine.sequence import Sequence

_NO_BLOCK = -1


@dataclass(frozen=True, slots=True)
class Fit:
    """What the cache can do for a sequence that waits."""

    blocks: tuple[int, ...]
    """Full blocks that are computed already."""
    num_missing: int
    """Blocks that it needs beside."""
    num_taken: int
    """Available blocks that its admission takes, cached ones among `blocks` included."""


class PrefixCache:
    """Owns the blocks of all sequences, by sequence id. Used by the step thread only."""

    def __init__(self, pool: BlockPool, hasher: BlockHasher) -> None:
        self.pool = pool
        self.num_query_tokens = 0
        """Prompt tokens of all sequences that were admitted."""
        self.num_hit_tokens = 0
        """Those of them that were read from the cache."""
        self._hasher = hasher
        self._index = PrefixIndex()
        self._copies: list[tuple[int, int]] = []
        """Of the plan that is being made; their sources are pinned."""
        self._least_copy = max(1, pool.block_size // 4)
        pool.on_evict = self._index.evict

    def fit(self, sequence: Sequence) -> Fit:
        """Look up a sequence. At least its last token is left to compute."""
        blocks = self._find(sequence)
        num_missing = self.pool.blocks_for(len(sequence.token_ids)) - len(blocks)
        return Fit(blocks, num_missing, num_missing + sum(self.pool.is_cached(block) for block in blocks))

    def is_being_computed(self, sequence: Sequence, fit: Fit, running: Iterable[Sequence]) -> bool:
        """Whether the next full block that `sequence` lacks is just being computed for a running one that goes before it."""
        size, index = self.pool.block_size, len(fit.blocks)
        begin, end = index * size, (index + 1) * size
        if end >= len(sequence.token_ids) or sequence.owes_prompt_logprobs:
            return False
        parent, wanted = self._hash(sequence, index - 1), sequence.token_ids[begin:end]
        return any(
            other.num_indexed_blocks == index
            and other.num_uncomputed > 1
            and other.num_computed < end <= len(other.token_ids)
            and other.order < sequence.order
            and self._hash(other, index - 1) == parent
            and other.token_ids[begin:end] == wanted
            for other in running
        )

    def admit(self, sequence: Sequence, fit: Fit, running: Iterable[Sequence], reserve: int) -> list[tuple[int, int]]:
        """Give a sequence the blocks for all its tokens, as many as possible with their contents, and set how far it is computed.

        `fit` is its own, looked up since the last change of the cache. Returns the copies (from, to) that have to be made before the next
        step. OutOfBlocks, and no change, when not `reserve` blocks would be left. Sources of copies stay as they are until `unpin`.
        """
        size = self.pool.block_size
        room = self.pool.num_available - reserve - fit.num_taken
        if room < 0:
            raise OutOfBlocks("too few blocks for the sequence and the reserve")
        source, count = self._start_of_next(sequence, len(fit.blocks), running)
        if count and self.pool.is_cached(source) and room == 0:
            count = 0
        self.pool.share(sequence.sequence_id, fit.blocks)
        if count:
            self.pool.pin(source)
        self.pool.cover(sequence.sequence_id, len(sequence.token_ids))
        sequence.num_indexed_blocks = len(fit.blocks)
        sequence.num_computed = len(fit.blocks) * size + count
        self._count(sequence)
        copies = [(source, self.pool.table(sequence.sequence_id)[len(fit.blocks)])] if count else []
        self._copies += copies
        return copies

    def unpin(self) -> None:
        """The plan is made: what it copies from may be evicted by the next one."""
        for source, _ in self._copies:
            self.pool.unpin(source)
        self._copies.clear()

    def grow(self, sequence: Sequence, num_drafts: int = 0) -> None:
        """Give a sequence the blocks that its next token, and drafts behind it, need, if it lacks them. OutOfBlocks when there are none."""
        self.pool.cover(sequence.sequence_id, len(sequence.token_ids) + num_drafts)

    def commit(self, sequence: Sequence) -> None:
        """A step of this sequence has succeeded: index the blocks that are full now."""
        owner, size = sequence.sequence_id, self.pool.block_size
        while sequence.num_indexed_blocks < sequence.num_computed // size:
            index, table = sequence.num_indexed_blocks, self.pool.table(owner)
            parent = self._hash(sequence, index - 1)
            if index and self._index.block_of(parent) != table[index - 1]:
                return  # The block before this one was dropped.
            block_hash = self._hash(sequence, index)
            known = self._index.block_of(block_hash)
            if known is None:
                self._index.insert(parent, block_hash, table[index], sequence.token_ids[index * size : (index + 1) * size])
                self.pool.keep(table[index])
            else:
                self.pool.replace(owner, index, known)
            sequence.num_indexed_blocks += 1

    def release(self, sequence: Sequence) -> None:
        """Take the blocks of a sequence back; indexed ones stay cached."""
        self.pool.release(sequence.sequence_id)
        sequence.num_indexed_blocks = 0

    def drop(self, sequence: Sequence) -> None:
        """The numbers of this sequence are not finite: nobody may find its blocks any more, nor those that were computed from them."""
        if sequence.num_indexed_blocks:
            for block in self._index.remove_tree(self._hash(sequence, 0)):
                self.pool.drop(block)

    def take_changes(self) -> list[KvEvent]:
        """What became reusable or went since the last call, in order."""
        return self._index.take_changes()

    def check(self) -> None:
        """Raise AssertionError when an invariant is broken. For tests."""
        self.pool.check()
        self._index.check(self.pool.kept())

    def _find(self, sequence: Sequence) -> tuple[int, ...]:
        if sequence.owes_prompt_logprobs:
            return ()
        blocks = []
        for index in range((len(sequence.token_ids) - 1) // self.pool.block_size):
            block = self._index.block_of(self._hash(sequence, index))
            if block is None:
                break
            blocks.append(block)
        return tuple(blocks)

    def _start_of_next(self, sequence: Sequence, index: int, running: Iterable[Sequence]) -> tuple[int, int]:
        """A block that begins like block `index` of the sequence, and how many positions of it can be copied; 0 when none is worth it.

        Also a block that a running sequence is still filling will do: what is computed in it does not change any more. One that is only
        to be copied into before this step will not.
        """
        begin, size = index * self.pool.block_size, self.pool.block_size
        wanted = sequence.token_ids[begin : min(begin + size, len(sequence.token_ids) - 1)]
        if sequence.owes_prompt_logprobs or len(wanted) < self._least_copy:
            return _NO_BLOCK, 0
        parent = self._hash(sequence, index - 1)
        best, count = self._index.best_start(parent, wanted)
        empty = {target for _, target in self._copies}
        for other in running:
            if other.num_indexed_blocks == index and other.num_computed > begin + count and self._hash(other, index - 1) == parent:
                block = self.pool.table(other.sequence_id)[index]
                live = num_common(other.token_ids[begin : other.num_computed], wanted)
                if live > count and block not in empty:
                    best, count = block, live
        return (best, count) if count >= self._least_copy else (_NO_BLOCK, 0)

    def _hash(self, sequence: Sequence, index: int) -> bytes:
        """Hash of block `index` of a sequence, that of the root for -1; each is computed once."""
        hashes, size = sequence.block_hashes, self.pool.block_size
        if not hashes:
            hashes.append(self._hasher.root(sequence.cache_salt))
        while len(hashes) < index + 2:
            begin = (len(hashes) - 1) * size
            hashes.append(self._hasher.block(hashes[-1], sequence.token_ids[begin : begin + size]))
        return hashes[index + 1]

    def _count(self, sequence: Sequence) -> None:
        if sequence.is_begun:
            return
        sequence.is_begun = True
        sequence.num_cached = min(sequence.num_computed, sequence.num_prompt - 1)
        self.num_query_tokens += sequence.num_prompt
        self.num_hit_tokens += sequence.num_cached
