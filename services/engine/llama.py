"""What a version folder says about a llama network, whoever computes it."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from safetensors import SafetensorError, safe_open

from services.kit.model_store import CONFIG, WEIGHTS, ModelCorruptError, ModelVersion


@dataclass(frozen=True, slots=True)
class LlamaConfig:
    """The numbers of a llama network, from `config.json`."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope_theta: float
    rms_norm_eps: float
    tied: bool
    """Whether the output head is the embedding table."""


def read_config(version: ModelVersion) -> LlamaConfig:
    """The network's numbers; ModelCorruptError when the folder does not hold a llama network this code computes."""
    try:
        fields = json.loads(version.read(CONFIG))
        if fields["model_type"] != "llama" or fields.get("rope_scaling") or fields["hidden_act"] != "silu":
            raise ValueError("not a plain llama")
        if int(fields["vocab_size"]) != version.vocab_size:
            raise ValueError("another vocabulary than the manifest's")
        return LlamaConfig(
            vocab_size=int(fields["vocab_size"]),
            hidden_size=int(fields["hidden_size"]),
            intermediate_size=int(fields["intermediate_size"]),
            num_layers=int(fields["num_hidden_layers"]),
            num_heads=int(fields["num_attention_heads"]),
            num_kv_heads=int(fields["num_key_value_heads"]),
            head_dim=int(fields["head_dim"]),
            rope_theta=float(fields["rope_theta"]),
            rms_norm_eps=float(fields["rms_norm_eps"]),
            tied=bool(fields["tie_word_embeddings"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ModelCorruptError(f"{version.name} {version.version}: {CONFIG} does not describe a llama network: {error}") from error


@contextmanager
def open_weights(version: ModelVersion, framework: str) -> Iterator[Callable[..., Any]]:
    """Reads tensors by name and expected shape; ModelCorruptError when one is missing or misshapen, or the file is no safetensors file."""
    try:
        with safe_open(version.file(WEIGHTS), framework=framework) as file:
            yield _checked_tensors(file, version)
    except SafetensorError as error:
        raise ModelCorruptError(f"{version.name} {version.version}: {WEIGHTS} is not a safetensors file: {error}") from error


def _checked_tensors(file: Any, version: ModelVersion) -> Callable[..., Any]:
    names = frozenset(file.keys())

    def read(name: str, *shape: int) -> Any:
        if name not in names:
            raise ModelCorruptError(f"{version.name} {version.version}: {WEIGHTS} has no {name}")
        tensor = file.get_tensor(name)
        if tuple(tensor.shape) != shape:
            raise ModelCorruptError(f"{version.name} {version.version}: {name} has shape {tuple(tensor.shape)} instead of {shape}")
        return tensor

    return read
