"""Loads a version folder's llama weights in the layout that the forward pass wants."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from services.engine.llama import LlamaConfig, open_weights
from services.engine.torch_runner.linear import Linear, make_linear
from services.kit.model_store import ModelVersion


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer; q, k, v and gate, up are one product each."""

    attention_norm: Tensor
    qkv: Linear
    output: Linear
    mlp_norm: Tensor
    gate_up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class LlamaWeights:
    """A whole network on one device."""

    embedding: Tensor
    layers: list[LayerWeights]
    norm: Tensor
    head: Linear


def load_weights(version: ModelVersion, config: LlamaConfig, device: torch.device, dtype: torch.dtype) -> LlamaWeights:
    """Read, check and lay out the weights; `version` must have been verified. ModelCorruptError when a weight is missing or misshapen."""
    with open_weights(version, "pt") as tensor:

        def read(name: str, *shape: int) -> Tensor:
            found: Tensor = tensor(name, *shape)
            return found.to(device, dtype)

        vocab, hidden = config.vocab_size, config.hidden_size
        embedding = read("model.embed_tokens.weight", vocab, hidden)
        return LlamaWeights(
            embedding=embedding,
            layers=[_layer(config, index, read) for index in range(config.num_layers)],
            norm=read("model.norm.weight", hidden),
            head=make_linear(embedding if config.tied else read("lm_head.weight", vocab, hidden)),
        )


def _layer(config: LlamaConfig, index: int, read: Callable[..., Tensor]) -> LayerWeights:
    prefix, hidden, inner = f"model.layers.{index}.", config.hidden_size, config.intermediate_size
    attention, rows, kv_rows = prefix + "self_attn.", config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    query = rotary_pairs(read(attention + "q_proj.weight", rows, hidden), config.head_dim)
    key = rotary_pairs(read(attention + "k_proj.weight", kv_rows, hidden), config.head_dim)
    value = read(attention + "v_proj.weight", kv_rows, hidden)
    gate, up = read(prefix + "mlp.gate_proj.weight", inner, hidden), read(prefix + "mlp.up_proj.weight", inner, hidden)
    return LayerWeights(
        attention_norm=read(prefix + "input_layernorm.weight", hidden),
        qkv=make_linear(torch.cat([query, key, value])),
        output=make_linear(read(attention + "o_proj.weight", hidden, rows)),
        mlp_norm=read(prefix + "post_attention_layernorm.weight", hidden),
        gate_up=make_linear(torch.cat([gate, up])),
        down=make_linear(read(prefix + "mlp.down_proj.weight", hidden, inner)),
    )


def rotary_pairs(weight: Tensor, head_dim: int) -> Tensor:
    """Bring the two rows that one rotary frequency turns next to each other, per head.

    Queries and keys then turn as complex numbers in one operation. Scores do not change: both sides are reordered alike.
    """
    rows, hidden = weight.shape
    return weight.view(rows // head_dim, 2, head_dim // 2, hidden).transpose(1, 2).reshape(rows, hidden)
