"""Attention of one step over the paged KV cache: prefill chunks in fixed tiles, decodes in groups of similar length.

Numerics: a row's result depends on its own sequence only. Masked positions are exact zeros, prefill tiles have a fixed place and shape,
and a decode's result does not change when its group is padded to a longer context.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from services.engine.llama import LlamaConfig
from services.engine.torch_runner.paged_kv import PagedKv
from services.engine.torch_runner.step_batch import TILE, DecodeGroup, PrefillPart, StepBatch


class DecodeAttention(Protocol):
    """Attention of sequences that have one query token each."""

    def prepare(self, groups: Sequence[DecodeGroup]) -> None:
        """Build what all layers of a step share."""
        ...

    def __call__(self, layer: int, queries: Tensor, out: Tensor) -> None:
        """Attend for the prepared groups: their rows of `queries` [rows, heads, head_dim] into the same rows of `out`."""
        ...


class StepAttention:
    """Attention of a whole step: decodes by one means, prefill chunks by another."""

    def __init__(self, decode: DecodeAttention, prefill: "TorchPrefill") -> None:
        self._decode = decode
        self._prefill = prefill

    def prepare(self, batch: StepBatch) -> None:
        """Build what all layers of a step share."""
        self._decode.prepare(batch.decodes)

    def __call__(self, layer: int, batch: StepBatch, queries: Tensor, out: Tensor) -> None:
        """Attend with `queries` [rows, heads, head_dim]; keys and values of the step are already in the cache. Writes `out`, same shape."""
        if batch.decodes:
            self._decode(layer, queries, out)
        for part in batch.prefills:
            self._prefill(layer, part, queries, out)


class TorchDecode:
    """Gathers each group's context and folds the query heads of one KV head into rows of one fused product.

    Folding is several times faster on a CPU than one row per query head, and gives every call the same shape of rows.
    """

    def __init__(self, kv: PagedKv, config: LlamaConfig, dtype: torch.dtype) -> None:
        self._kv = kv
        self._fold = (config.num_kv_heads, config.num_heads // config.num_kv_heads, config.head_dim)
        self._dtype = dtype
        self._prepared: list[tuple[DecodeGroup, Tensor]] = []

    def prepare(self, groups: Sequence[DecodeGroup]) -> None:
        """See `DecodeAttention`."""
        self._prepared = [(group, self._mask(group)) for group in groups]

    def __call__(self, layer: int, queries: Tensor, out: Tensor) -> None:
        """See `DecodeAttention`."""
        for group, mask in self._prepared:
            keys, values = self._kv.gather(layer, group.blocks)
            folded = queries.index_select(0, group.rows).view(-1, *self._fold)
            result = F.scaled_dot_product_attention(folded, keys, values, attn_mask=mask)
            out.index_copy_(0, group.rows, result.reshape(len(result), *out.shape[1:]))

    def _mask(self, group: DecodeGroup) -> Tensor:
        reach = torch.arange(group.blocks.shape[1] * self._kv.block_size, device=group.lengths.device)
        hidden = reach[None, :] >= group.lengths[:, None]
        return torch.zeros(hidden.shape, dtype=self._dtype, device=hidden.device).masked_fill_(hidden, float("-inf"))[:, None, None]


class TorchPrefill:
    """Computes one sequence's chunk tile by tile; a tile that the chunk covers in part is filled up with rows that go nowhere."""

    def __init__(self, kv: PagedKv, config: LlamaConfig, max_tokens: int, dtype: torch.dtype, device: torch.device) -> None:
        self._kv = kv
        self._head_dim = config.head_dim
        self._reach = -(-max_tokens // TILE) * TILE
        self._causal = torch.zeros(TILE, self._reach + TILE, dtype=dtype, device=device)
        self._causal[:, -TILE:] = torch.full((TILE, TILE), float("-inf"), device=device).triu(1)

    def __call__(self, layer: int, part: PrefillPart, queries: Tensor, out: Tensor) -> None:
        """Attend for the rows of `part` in `queries` [rows, heads, head_dim] and write the same rows of `out`."""
        keys, values = self._kv.gather(layer, part.blocks[None])
        first_tile, end_tile = part.start // TILE, -(-part.end // TILE)
        before, after = part.start - first_tile * TILE, end_tile * TILE - part.end
        rows = queries[part.first_row : part.first_row + part.end - part.start]
        tiles = F.pad(rows, (0, 0, 0, 0, before, after)).view(end_tile - first_tile, TILE, -1, self._head_dim)
        results = torch.empty_like(tiles)
        for index, tile in enumerate(tiles):
            end = (first_tile + index + 1) * TILE
            mask = self._causal[:, self._reach + TILE - end :]
            result = F.scaled_dot_product_attention(
                tile.transpose(0, 1)[None], keys[:, :, :end], values[:, :, :end], attn_mask=mask, enable_gqa=True
            )
            results[index] = result[0].transpose(0, 1)
        out[part.first_row : part.first_row + len(rows)] = results.view(-1, *rows.shape[1:])[before : before + len(rows)]
