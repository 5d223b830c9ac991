"""Names of full KV blocks: equal names mean equal contents, whoever computed them."""

import struct
from collections.abc import Sequence
from hashlib import sha256


class BlockHasher:
    """SHA-256 over the parent's hash and the block's token ids (32 bits each, little-endian): a hash stands for all tokens up to it.

    The parent of a first block is the root: SHA-256 over cache salt, adapter, model and weights version, each led by its length (32 bits),
    so that no two of these run into each other. Sequences of different salts therefore have no hash in common, and a hash tells nothing
    about tokens to those who do not know the salt.
    """

    def __init__(self, block_size: int, model: str, version: str) -> None:
        self._tokens = struct.Struct(f"<{block_size}I")
        self._suffix = _framed(model.encode()) + _framed(version.encode())

    def root(self, salt: bytes, adapter: bytes = b"") -> bytes:
        """The parent of first blocks."""
        return sha256(_framed(salt) + _framed(adapter) + self._suffix).digest()

    def block(self, parent: bytes, token_ids: Sequence[int]) -> bytes:
        """The hash of a full block."""
        return sha256(parent + self._tokens.pack(*token_ids)).digest()


def _framed(part: bytes) -> bytes:
    return struct.pack("<I", len(part)) + part
