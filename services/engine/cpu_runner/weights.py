"""Loads a version folder's llama weights into the blocks that the CPU kernels read."""

from collections.abc import Callable

import torch
from safetensors import safe_open
from torch import Tensor

from services.engine.cpu_runner.native import LANES, Kernels, PackedLayer, PackedWeights
from services.engine.torch_runner.weights import LlamaConfig, checked_tensors
from services.kit.model_store import WEIGHTS, ModelVersion

Read = Callable[..., Tensor]


def pack_weights(version: ModelVersion, config: LlamaConfig, kernels: Kernels, max_tokens: int) -> PackedWeights:
    """Read, check and pack the weights; `version` must have been verified. ModelCorruptError when a weight is missing or misshapen."""
    with safe_open(version.file(WEIGHTS), framework="pt") as file:
        tensor = checked_tensors(file, version)

        def read(name: str, *shape: int) -> Tensor:
            return tensor(name, *shape).to(torch.float32).contiguous()

        size = (config.vocab_size, config.hidden_size)
        embedding = kernels.pack(read("model.embed_tokens.weight", *size))
        cosines, sines = _rotations(config, max_tokens)
        return PackedWeights(
            embedding=embedding,
            layers=tuple(_layer(config, index, read, kernels) for index in range(config.num_layers)),
            norm=read("model.norm.weight", config.hidden_size),
            head=embedding if config.tied else kernels.pack(read("lm_head.weight", *size)),
            cosines=cosines,
            sines=sines,
        )


def _layer(config: LlamaConfig, index: int, read: Read, kernels: Kernels) -> PackedLayer:
    prefix, hidden, inner = f"model.layers.{index}.", config.hidden_size, config.intermediate_size
    attention, rows, kv_rows = prefix + "self_attn.", config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    query = read(attention + "q_proj.weight", rows, hidden)
    key, value = (read(f"{attention}{name}_proj.weight", kv_rows, hidden) for name in "kv")
    gate, up = (read(f"{prefix}mlp.{name}_proj.weight", inner, hidden) for name in ("gate", "up"))
    turns = torch.stack([gate.view(-1, LANES, hidden), up.view(-1, LANES, hidden)], dim=1).view(-1, hidden)
    return PackedLayer(
        attention_norm=read(prefix + "input_layernorm.weight", hidden),
        qkv=kernels.pack(torch.cat([query, key, value])),
        output=kernels.pack(read(attention + "o_proj.weight", hidden, rows)),
        mlp_norm=read(prefix + "post_attention_layernorm.weight", hidden),
        gate_up=kernels.pack(turns),
        down=kernels.pack(read(prefix + "mlp.down_proj.weight", hidden, inner)),
    )


def _rotations(config: LlamaConfig, max_tokens: int) -> tuple[Tensor, Tensor]:
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.int64).float() / config.head_dim
    angles = torch.arange(max_tokens, dtype=torch.int64).float()[:, None] * (1.0 / config.rope_theta**exponents)
    return angles.cos(), angles.sin()
