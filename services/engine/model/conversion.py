"""Writes the files of a version from a GGUF source: weights, config, tokenizer and chat template."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from services.engine.model.errors import ModelImportError
from services.engine.model.gguf_source import GgufSource, LlamaShape
from services.engine.model.llama_weights import weight, weight_names
from services.engine.model.safetensors_file import write_float32
from services.engine.model.tokenizer import build_tokenizer
from services.kit.model_store import CHAT_TEMPLATE, CONFIG, MANIFEST_FORMAT, TOKENIZER, WEIGHTS, StoredFile


def convert_gguf(
    source_path: Path, folder: Path, max_context_tokens: int, eos_tokens: tuple[str, ...], hear: Callable[[str, int, int], None]
) -> dict[str, Any]:
    """Fill the empty `folder` and return what the manifest says about the files. ModelImportError when the source is not usable.

    Weights are written in float32, the type in which dequantisation is exact: whoever loads the folder computes with the same values.
    """
    hear("read", 0, 1)
    source = GgufSource(source_path)
    shape = source.shape()
    limit = min(max_context_tokens or shape.max_context_tokens, shape.max_context_tokens)
    tokenizer = build_tokenizer(source)
    eos, bos = _eos_ids(source, tokenizer, eos_tokens), source.token_id("tokenizer.ggml.bos_token_id")
    texts = {
        CONFIG: json.dumps(_config(source, shape, limit, eos, bos), indent=2) + "\n",
        TOKENIZER: tokenizer.to_str(pretty=False),
        CHAT_TEMPLATE: source.text("tokenizer.chat_template"),
    }
    files = {name: _write_text(folder / name, text) for name, text in texts.items()}
    files[WEIGHTS] = _write_weights(folder / WEIGHTS, source, shape, hear)
    return {
        "format": MANIFEST_FORMAT,
        "max_context_tokens": limit,
        "vocab_size": shape.vocab_size,
        "eos_token_ids": eos,
        "bos_token_id": bos,
        "files": {name: {"sha256": file.sha256, "bytes": file.num_bytes} for name, file in files.items()},
    }


def _eos_ids(source: GgufSource, tokenizer: Any, eos_tokens: tuple[str, ...]) -> list[int]:
    ids = [tokenizer.token_to_id(token) for token in eos_tokens]
    if None in ids:
        raise ModelImportError(f"the vocabulary has no token {eos_tokens[ids.index(None)]!r}")
    return sorted({source.integer("tokenizer.ggml.eos_token_id"), *ids})


def _config(source: GgufSource, shape: LlamaShape, limit: int, eos: list[int], bos: int | None) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": limit,
        "rms_norm_eps": shape.rms_norm_eps,
        "rope_theta": shape.rope_theta,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": "output.weight" not in source.tensor_names(),
        "bos_token_id": bos,
        "eos_token_id": eos,
        "pad_token_id": source.token_id("tokenizer.ggml.padding_token_id"),
        "dtype": "float32",
    }


def _write_text(path: Path, text: str) -> StoredFile:
    content = text.encode()
    path.write_bytes(content)
    return StoredFile(hashlib.sha256(content).hexdigest(), len(content))


def _write_weights(path: Path, source: GgufSource, shape: LlamaShape, hear: Callable[[str, int, int], None]) -> StoredFile:
    names = weight_names(source, shape)
    shapes = {name: source.tensor_shape(gguf_name) for name, gguf_name in sorted(names.items())}
    needed, free = sum(_num_bytes(size) for size in shapes.values()), shutil.disk_usage(path.parent).free
    if needed > free:
        raise ModelImportError(f"the weights need {needed >> 20} MiB and the disk has {free >> 20} MiB left")
    return write_float32(
        path, shapes, lambda name: weight(source, shape, name, names[name]), lambda done, total: hear("weights", done, total)
    )


def _num_bytes(shape: tuple[int, ...]) -> int:
    count = 4
    for size in shape:
        count *= size
    return count
