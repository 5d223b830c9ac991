"""Which kept blocks hold which prefixes: a tree whose nodes are full blocks, found by their hash in constant time."""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice

from services.engine.kv_events import KvEvent, Removed, Stored

MAX_LOOKS = 8
"""Most blocks behind one parent that are compared token by token."""


@dataclass(slots=True, eq=False)
class IndexedBlock:
    """A full block and what stands in it."""

    hash: bytes
    parent: bytes
    """Hash of the block before it, or the root of its salt."""
    block: int
    token_ids: Sequence[int] = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Change:
    hash: bytes
    parent: bytes | None
    """None when the block is gone."""


class PrefixIndex:
    """Knows every kept block, used or not. The block before an indexed one is indexed, too. Used by the step thread only."""

    def __init__(self) -> None:
        self._nodes: dict[bytes, IndexedBlock] = {}
        self._by_block: dict[int, IndexedBlock] = {}
        self._children: dict[bytes, dict[bytes, IndexedBlock]] = {}
        self._changes: list[_Change] = []

    def __len__(self) -> int:
        return len(self._nodes)

    def block_of(self, block_hash: bytes) -> int | None:
        """The block with these contents."""
        node = self._nodes.get(block_hash)
        return None if node is None else node.block

    def insert(self, parent: bytes, block_hash: bytes, block: int, token_ids: Sequence[int]) -> None:
        """Add a block behind `parent`, which is indexed or a root; neither hash nor block is indexed yet."""
        node = IndexedBlock(block_hash, parent, block, array("I", token_ids))
        self._nodes[block_hash] = self._by_block[block] = node
        self._children.setdefault(parent, {})[block_hash] = node
        self._changes.append(_Change(block_hash, parent if parent in self._nodes else b""))

    def best_start(self, parent: bytes, token_ids: Sequence[int]) -> tuple[int, int]:
        """A block behind `parent` that begins with as many of these tokens as possible, and how many; looks at the youngest few only."""
        siblings = islice(reversed(self._children.get(parent, {}).values()), MAX_LOOKS)
        return max(((num_common(node.token_ids, token_ids), node.block) for node in siblings), default=(0, -1))[::-1]

    def evict(self, block: int) -> None:
        """Forget one block; none behind it is indexed any more."""
        self._remove(self._by_block[block])

    def remove_tree(self, block_hash: bytes) -> list[int]:
        """Forget a block and all behind it; returns these blocks. An unknown hash is no error."""
        found = [self._nodes[block_hash]] if block_hash in self._nodes else []
        for node in found:  # Grows on the way.
            found += self._children.get(node.hash, {}).values()
        for node in reversed(found):
            self._remove(node)
        return [node.block for node in found]

    def take_changes(self) -> list[KvEvent]:
        """What changed since the last call, in order."""
        changes, self._changes = self._changes, []
        return list(_events(changes))

    def check(self, kept: Sequence[int]) -> None:
        """Raise AssertionError when the tree is broken or its blocks are not the `kept` ones. For tests."""
        if sorted(self._by_block) != sorted(kept):
            raise AssertionError("the kept blocks are not the indexed ones")
        if sum(len(children) for children in self._children.values()) != len(self._nodes) or len(self._by_block) != len(self._nodes):
            raise AssertionError("the tree is not made of the nodes")

    def _remove(self, node: IndexedBlock) -> None:
        if node.hash in self._children:
            raise AssertionError("a block goes before those behind it")
        del self._nodes[node.hash], self._by_block[node.block]
        siblings = self._children[node.parent]
        del siblings[node.hash]
        if not siblings:
            del self._children[node.parent]
        self._changes.append(_Change(node.hash, None))


def num_common(left: Sequence[int], right: Sequence[int]) -> int:
    """With how many equal tokens both begin."""
    count = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        count += 1
    return count


def _events(changes: list[_Change]) -> Iterator[KvEvent]:
    for is_removed, group in groupby(changes, key=lambda change: change.parent is None):
        if is_removed:
            yield Removed(tuple(change.hash for change in group))
        else:
            yield from _stored(list(group))


def _stored(changes: list[_Change]) -> Iterator[Stored]:
    """One event per run of blocks of which each is the parent of the next."""
    begin = 0
    for at in range(1, len(changes) + 1):
        if at == len(changes) or changes[at].parent != changes[at - 1].hash:
            yield Stored(changes[begin].parent or b"", tuple(change.hash for change in changes[begin:at]))
            begin = at
