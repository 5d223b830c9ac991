"""A model version folder small enough to make in a test: a byte-level tokenizer of about 300 tokens and weights that nobody reads."""

import json
from pathlib import Path
from typing import Any

from services.kit.model_store import CHAT_TEMPLATE, CONFIG, MANIFEST, TOKENIZER, WEIGHTS, ModelStore, ModelVersion, sha256_of, version_of

NAME = "tiny"
EOS = 1
MAX_CONTEXT_TOKENS = 512
_MERGED_WORDS = (" the", " a", " of", " and", " to", " in", "er", "ing", "ed", " it")
_SPECIAL = ("<|start|>", "<|end|>")


def write_tiny_model(home: Path, name: str = NAME, max_context_tokens: int = MAX_CONTEXT_TOKENS) -> ModelVersion:
    """Put the model into the store below `home` and return its version."""
    tokenizer = tokenizer_document()
    contents = {
        WEIGHTS: b"no weights",
        CONFIG: b"{}",
        TOKENIZER: json.dumps(tokenizer).encode(),
        CHAT_TEMPLATE: b"{% for message in messages %}{{ message.content }}{% endfor %}",
    }
    building = home / "models" / name / "building"
    building.mkdir(parents=True)
    for file, content in contents.items():
        (building / file).write_bytes(content)
    manifest = {
        "format": 1,
        "name": name,
        "max_context_tokens": max_context_tokens,
        "vocab_size": len(tokenizer["model"]["vocab"]),
        "eos_token_ids": [EOS],
        "bos_token_id": 0,
        "license": "none",
        "defaults": {},
        "source_sha256": "0" * 64,
        "recipe": "0" * 64,
        "files": {file: {"sha256": sha256_of(building / file), "bytes": len(content)} for file, content in contents.items()},
    }
    manifest["version"] = version_of(manifest)
    (building / MANIFEST).write_text(json.dumps(manifest))
    building.rename(building.with_name(str(manifest["version"])))
    return ModelStore(home).get(name)


def byte_token(byte: int) -> int:
    """The id of the token that stands for one byte."""
    return len(_SPECIAL) + byte


def tokenizer_document() -> dict[str, Any]:
    """The tokenizer.json of the model."""
    alphabet = [_character(byte) for byte in range(256)]
    words = ["".join(_character(byte) for byte in word.encode()) for word in _MERGED_WORDS]
    vocab = {token: index for index, token in enumerate([*_SPECIAL, *alphabet, *words])}
    special = [
        {"id": index, "content": content, "special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
        for index, content in enumerate(_SPECIAL)
    ]
    return {
        "version": "1.0",
        "added_tokens": special,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
    }


def _character(byte: int) -> str:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    return chr(byte) if byte in printable else chr(0x100 + sum(other not in printable for other in range(byte)))
