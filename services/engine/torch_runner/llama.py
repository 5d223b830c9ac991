"""The llama forward pass over a flattened step (Touvron et al., 2023; grouped queries as in Ainslie et al., 2023)."""

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from services.engine.llama import LlamaConfig
from services.engine.torch_runner.paged_kv import PagedKv
from services.engine.torch_runner.step_batch import StepBatch
from services.engine.torch_runner.weights import LayerWeights, LlamaWeights


class Attention(Protocol):
    """How a layer's queries meet the KV cache."""

    def prepare(self, batch: StepBatch) -> None:
        """Build what all layers of a step share."""
        ...

    def __call__(self, layer: int, batch: StepBatch, queries: Tensor, out: Tensor) -> None:
        """Attend with `queries` [rows, heads, head_dim] and write `out` of the same shape."""
        ...


class Llama:
    """Weights, KV cache and attention joined into one function of a step."""

    def __init__(self, config: LlamaConfig, weights: LlamaWeights, kv: PagedKv, attention: Attention, max_tokens: int) -> None:
        self._config = config
        self._weights = weights
        self.kv = kv
        self._attention = attention
        self._turns = rotary_turns(config, max_tokens, weights.embedding.device)
        self._num_turned = config.num_heads + config.num_kv_heads

    def forward(self, batch: StepBatch) -> Tensor:
        """Write the step's keys and values and return logits [logit rows, vocab] in float32 (no rows: no product with the head)."""
        self.kv.clear(batch.fresh_blocks)
        self._attention.prepare(batch)
        hidden = F.embedding(batch.token_ids, self._weights.embedding)
        turns = self._turns.index_select(0, batch.positions)[:, None]
        out = hidden.new_zeros(len(hidden), self._config.num_heads, self._config.head_dim)
        for index, layer in enumerate(self._weights.layers):
            hidden += self._attend(index, layer, batch, hidden, turns, out)
            hidden += self._mlp(layer, hidden)
        return self._logits(hidden.index_select(0, batch.logit_rows))

    def _attend(self, index: int, layer: LayerWeights, batch: StepBatch, hidden: Tensor, turns: Tensor, out: Tensor) -> Tensor:
        qkv = layer.qkv(self._norm(hidden, layer.attention_norm)).view(len(hidden), -1, self._config.head_dim)
        turned = rotate(qkv[:, : self._num_turned], turns)
        rows, heads = batch.num_rows, self._config.num_heads
        self.kv.write(index, batch.slots, turned[:rows, heads:], qkv[:rows, self._num_turned :])
        self._attention(index, batch, turned[:rows, :heads], out[:rows])
        return layer.output(out.view(len(hidden), -1))

    def _mlp(self, layer: LayerWeights, hidden: Tensor) -> Tensor:
        gate_up = layer.gate_up(self._norm(hidden, layer.mlp_norm))
        gate, up = gate_up.chunk(2, dim=-1)
        return layer.down(F.silu(gate).mul_(up))

    def _norm(self, hidden: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(hidden, (self._config.hidden_size,), weight, self._config.rms_norm_eps)

    def _logits(self, hidden: Tensor) -> Tensor:
        count, head = len(hidden), self._weights.head
        if count == 0:
            return hidden.new_empty(0, self._config.vocab_size, dtype=torch.float32)
        padded = F.pad(hidden, (0, 0, 0, max(0, head.min_rows - count)))
        return head(self._norm(padded, self._weights.norm))[:count].float()


def rotary_turns(config: LlamaConfig, max_tokens: int, device: torch.device) -> Tensor:
    """cos + i sin of every position and frequency, [max_tokens, head_dim / 2] complex64. (RoPE: Su et al., 2021.)"""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.int64).float() / config.head_dim
    frequencies = 1.0 / (config.rope_theta**exponents)
    angles = torch.arange(max_tokens, dtype=torch.int64).float()[:, None] * frequencies
    return torch.complex(angles.cos(), angles.sin()).to(device)


def rotate(heads: Tensor, turns: Tensor) -> Tensor:
    """Turn `heads` [rows, n, head_dim], whose rotary pairs are neighbours, by `turns` [rows, 1, head_dim / 2]."""
    pairs = torch.view_as_complex(heads.float().reshape(*heads.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns).flatten(-2).to(heads.dtype)
