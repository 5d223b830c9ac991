"""Changes of the prefix cache, in words that leave the replica: hashes, never tokens."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stored:
    """Blocks became reusable, each the parent of the next."""

    parent: bytes
    """Hash of the block before the first; empty at the start of a prompt."""
    hashes: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Removed:
    """Blocks are gone."""

    hashes: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Cleared:
    """All blocks are gone."""


KvEvent = Stored | Removed | Cleared
