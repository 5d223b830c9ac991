"""The bytes that every token id stands for, read from a tokenizer.json; enough to turn ids into text without a tokenizer library."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from services.kit.errors import DataLoss
from services.kit.model_store import TOKENIZER, ModelCorruptError, ModelVersion

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_WORD_START = "\u2581"


class TokenBytes:
    """Bytes by token id. Special tokens and ids that the tokenizer does not know stand for nothing."""

    def __init__(self, table: Sequence[bytes]) -> None:
        self._table = tuple(table)

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, token_id: int) -> bytes:
        return self._table[token_id] if token_id < len(self._table) else b""

    @classmethod
    def of(cls, version: ModelVersion) -> "TokenBytes":
        """Those of a model. ModelCorruptError when its tokenizer knows tokens that its weights have no row for; DataLoss as `from_json`."""
        found = cls.from_json(version.read(TOKENIZER))
        if len(found) > version.vocab_size:
            sizes = f"{len(found)} tokens, the weights {version.vocab_size}"
            raise ModelCorruptError(f"{version.name} {version.version}: the tokenizer has {sizes}; import the model again")
        return found

    @classmethod
    def from_json(cls, document: bytes) -> "TokenBytes":
        """Read a byte-level (GPT-2, Llama 3, Qwen) or byte-fallback (SentencePiece) vocabulary. DataLoss when it is neither."""
        try:
            tokenizer = json.loads(document)
            to_bytes = _byte_level if _uses(tokenizer["decoder"], "ByteLevel") else _byte_fallback
            if to_bytes is _byte_fallback and not _uses(tokenizer["decoder"], "ByteFallback"):
                raise KeyError("decoder")
            entries = {int(token_id): to_bytes(token) for token, token_id in tokenizer["model"]["vocab"].items()}
            for added in tokenizer.get("added_tokens", ()):
                entries[int(added["id"])] = b"" if added["special"] else to_bytes(added["content"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataLoss("the tokenizer of the model has no byte-level and no byte-fallback vocabulary") from error
        return cls([entries.get(token_id, b"") for token_id in range(max(entries, default=-1) + 1)])


def _uses(decoder: Any, kind: str) -> bool:
    return isinstance(decoder, Mapping) and (decoder.get("type") == kind or any(_uses(part, kind) for part in decoder.get("decoders", ())))


def _byte_level(token: str) -> bytes:
    """Bytes of a token whose characters each stand for one byte; a token with other characters stands for itself."""
    try:
        return bytes(_BYTE_OF_CHARACTER[character] for character in token)
    except KeyError:
        return token.encode()


def _byte_fallback(token: str) -> bytes:
    match = _BYTE_TOKEN.fullmatch(token)
    return bytes([int(match[1], 16)]) if match else token.replace(_WORD_START, " ").encode()


def _byte_characters() -> dict[str, int]:
    """The byte alphabet of GPT-2: printable Latin-1 bytes are their own character, the rest follow from U+0100 in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in set(printable)]
    alphabet = {chr(byte): byte for byte in printable}
    return alphabet | {chr(0x100 + index): byte for index, byte in enumerate(others)}


_BYTE_OF_CHARACTER = _byte_characters()
