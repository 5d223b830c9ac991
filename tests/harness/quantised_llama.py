"""A llama forward pass that rounds exactly where the CPU kernels round, written for reading: one sequence, no cache, float64."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from services.kit.model_store import CONFIG, WEIGHTS, ModelVersion

_GROUP = 32
_CHUNK = 256


def last_logits(version: ModelVersion, tokens: list[int], *, weights_rounded: bool, largest: int, kv: str = "bfloat16") -> Tensor:
    """Logits after `tokens`: weights as stored or int8 per group of 32, activations whole numbers per group of 32.

    `largest` is the number that stands for a group's largest activation. Queries, keys and values are rounded as `kv` says.
    """
    config = {**json.loads(version.read(CONFIG)), "largest": largest, "kv": kv}
    weights = {name: tensor.double() for name, tensor in load_file(Path(version.file(WEIGHTS))).items()}
    if weights_rounded:
        weights = {name: _rounded(tensor, 127, half_scale=True) if tensor.ndim == 2 else tensor for name, tensor in weights.items()}
    hidden = weights["model.embed_tokens.weight"][tokens]
    for layer in range(config["num_hidden_layers"]):
        hidden = _layer(hidden, {name.split(f"layers.{layer}.")[-1]: tensor for name, tensor in weights.items()}, config)
    head = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
    return _product(_norm(hidden[-1:], weights["model.norm.weight"], config), head, config)[0].float()


def _layer(hidden: Tensor, weights: dict[str, Tensor], config: dict[str, Any]) -> Tensor:
    normal = _norm(hidden, weights["input_layernorm.weight"], config)
    queries, keys, values = (_product(normal, weights[f"self_attn.{name}_proj.weight"], config) for name in "qkv")
    rounded = _bfloat16 if config["kv"] == "bfloat16" else _int8
    heads = _turned(queries, config) * (math.log2(math.e) / config["head_dim"] ** 0.5)
    keys, values = rounded(_turned(keys, config)), rounded(_heads(values, config))
    attended = _attend(rounded(heads), keys, values, _bfloat16 if config["kv"] == "bfloat16" else _as_it_is)
    hidden = hidden + _product(attended, weights["self_attn.o_proj.weight"], config)
    normal = _norm(hidden, weights["post_attention_layernorm.weight"], config)
    gate, up = (_product(normal, weights[f"mlp.{name}_proj.weight"], config) for name in ("gate", "up"))
    return hidden + _product(torch.nn.functional.silu(gate) * up, weights["mlp.down_proj.weight"], config)


def _product(x: Tensor, weight: Tensor, config: dict[str, Any]) -> Tensor:
    return _rounded(x, config["largest"]) @ weight.T


def _rounded(x: Tensor, largest: float, *, half_scale: bool = False) -> Tensor:
    groups = x.unflatten(-1, (-1, _GROUP))
    scale = groups.abs().amax(dim=-1, keepdim=True) / largest
    scale = scale.half().double() if half_scale else scale
    return ((groups / scale).round().clamp(-largest, largest) * scale).flatten(-2)


def _norm(x: Tensor, weight: Tensor, config: dict[str, Any]) -> Tensor:
    return x * (x.pow(2).mean(dim=-1, keepdim=True) + config["rms_norm_eps"]).rsqrt() * weight


def _heads(x: Tensor, config: dict[str, Any]) -> Tensor:
    return x.unflatten(-1, (-1, int(config["head_dim"]))).transpose(0, 1)


def _turned(x: Tensor, config: dict[str, Any]) -> Tensor:
    """[heads, tokens, head_dim], each half-pair turned by its position."""
    size = int(config["head_dim"])
    angles = torch.arange(len(x)).double()[:, None] / config["rope_theta"] ** (torch.arange(0, size, 2).double() / size)
    low, high = _heads(x, config).chunk(2, dim=-1)
    return torch.cat([low * angles.cos() - high * angles.sin(), high * angles.cos() + low * angles.sin()], dim=-1)


def _bfloat16(x: Tensor) -> Tensor:
    return x.bfloat16().double()


def _int8(x: Tensor) -> Tensor:
    scale = x.abs().amax(dim=-1, keepdim=True) / 127
    return (x / scale).round() * scale


def _as_it_is(x: Tensor) -> Tensor:
    return x


def _attend(queries: Tensor, keys: Tensor, values: Tensor, rounded: Callable[[Tensor], Tensor]) -> Tensor:
    """Weights of keys are rounded beside the largest score of their chunk and of those before it."""
    shared = len(queries) // len(keys)
    keys, values = (x.repeat_interleave(shared, dim=0) for x in (keys, values))
    future = torch.full((keys.shape[1],) * 2, float("-inf"), dtype=torch.float64).triu(1)
    scores = queries @ keys.transpose(1, 2) + future
    highest, attended, mass = float("-inf"), torch.zeros(()), torch.zeros(())
    for chunk, part in zip(scores.split(_CHUNK, dim=-1), values.split(_CHUNK, dim=-2), strict=True):
        top = chunk.amax(dim=-1, keepdim=True).clamp(min=highest)
        weights = torch.exp2(chunk - top)
        keep = torch.exp2(highest - top)
        attended, mass, highest = attended * keep + rounded(weights) @ part, mass * keep + weights.sum(dim=-1, keepdim=True), top
    return (attended / mass).transpose(0, 1).flatten(1)
