"""Reads a GGUF file of the llama architecture as typed metadata and dequantised tensors.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from services.engine.model.errors import ModelImportError

FloatArray = npt.NDArray[np.float32]

_TYPES = frozenset({"F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"})


@dataclass(frozen=True, slots=True)
class LlamaShape:
    """The numbers that fix a llama network."""

    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_context_tokens: int
    rope_theta: float
    rms_norm_eps: float


class GgufSource:
    """One open GGUF file. ModelImportError names what is missing, damaged or not supported."""

    def __init__(self, path: Path) -> None:
        try:
            reader = gguf.GGUFReader(path)
        except FileNotFoundError as error:
            raise ModelImportError(f"{path} does not exist") from error
        except (ValueError, IndexError, KeyError, OSError, UnicodeDecodeError) as error:
            raise ModelImportError(f"{path.name} is not a whole GGUF file") from error
        self._path = path
        self._fields: dict[str, Any] = reader.fields
        self._tensors: dict[str, Any] = {tensor.name: tensor for tensor in reader.tensors}
        if self.text("general.architecture") != "llama":
            raise ModelImportError(f"{path.name} holds architecture {self.text('general.architecture')!r}; only llama is supported")

    def text(self, key: str, default: str | None = None) -> str:
        return str(self._value(key, default))

    def integer(self, key: str, default: int | None = None) -> int:
        return int(self._value(key, default))

    def number(self, key: str, default: float | None = None) -> float:
        return float(self._value(key, default))

    def flag(self, key: str, default: bool) -> bool:
        return bool(self._value(key, default))

    def items(self, key: str) -> list[Any]:
        """An array field as a list."""
        return list(self._value(key, None))

    def token_id(self, key: str) -> int | None:
        """A token id field, None when the file has none."""
        return self.integer(key) if key in self._fields else None

    def shape(self) -> LlamaShape:
        """The network's numbers; ModelImportError for rope scaling and other variants that would be computed wrongly."""
        scaling = self.text("llama.rope.scaling.type", "none")
        if scaling != "none" or "rope_freqs.weight" in self._tensors:
            raise ModelImportError(f"{self._path.name} scales its rotary positions ({scaling}); this is not supported")
        heads, hidden = self.integer("llama.attention.head_count"), self.integer("llama.embedding_length")
        head_dim = self.integer("llama.attention.key_length", hidden // heads)
        if self.integer("llama.rope.dimension_count", head_dim) != head_dim:
            raise ModelImportError(f"{self._path.name} rotates a part of each head only; this is not supported")
        return LlamaShape(
            num_layers=self.integer("llama.block_count"),
            hidden_size=hidden,
            intermediate_size=self.integer("llama.feed_forward_length"),
            num_heads=heads,
            num_kv_heads=self.integer("llama.attention.head_count_kv", heads),
            head_dim=head_dim,
            vocab_size=self.tensor_shape("token_embd.weight")[0],
            max_context_tokens=self.integer("llama.context_length"),
            rope_theta=self.number("llama.rope.freq_base", 10000.0),
            rms_norm_eps=self.number("llama.attention.layer_norm_rms_epsilon"),
        )

    def tensor_names(self) -> Iterator[str]:
        return iter(self._tensors)

    def tensor_shape(self, name: str) -> tuple[int, ...]:
        """Shape in row-major order (the file keeps the fastest dimension first)."""
        return tuple(int(size) for size in reversed(self._tensor(name).shape))

    def tensor(self, name: str) -> FloatArray:
        """The tensor in float32, without loss: dequantised exactly as the quantisation defines."""
        found = self._tensor(name)
        kind = found.tensor_type.name
        if kind not in _TYPES:
            raise ModelImportError(f"{self._path.name}: {name} is of type {kind}; supported: {', '.join(sorted(_TYPES))}")
        values = gguf.dequantize(found.data, found.tensor_type)
        return np.ascontiguousarray(values, dtype=np.float32).reshape(self.tensor_shape(name))

    def _tensor(self, name: str) -> Any:
        if name not in self._tensors:
            raise ModelImportError(f"{self._path.name} has no tensor {name}")
        return self._tensors[name]

    def _value(self, key: str, default: Any) -> Any:
        field = self._fields.get(key)
        if field is not None:
            return field.contents()
        if default is None:
            raise ModelImportError(f"{self._path.name} does not say {key}")
        return default
