"""Attention of one step over the paged KV cache: prefill chunks in fixed tiles, decodes in groups of similar length."""

import torch
import torch.nn.functional as F
from torch import Tensor

from services.engine.torch_runner.paged_kv import PagedKv
from services.engine.torch_runner.step_batch import TILE, DecodeGroup, PrefillPart, StepBatch


class TorchAttention:
    """Grouped-query attention through torch's fused kernels.

    Numerics: a row's result depends on its own sequence only. Masked positions are exact zeros, prefill tiles have a fixed place and shape,
    and decode folds the query heads of one KV head into rows (which is also several times faster than one row per head).
    """

    def __init__(self, kv: PagedKv, num_heads: int, num_kv_heads: int, head_dim: int, max_tokens: int, dtype: torch.dtype) -> None:
        self._kv = kv
        self._group = num_heads // num_kv_heads
        self._num_kv_heads = num_kv_heads
        self._head_dim = head_dim
        device = kv.layer(0)[0].device
        self._max_tokens = -(-max_tokens // TILE) * TILE
        self._causal = torch.zeros(TILE, self._max_tokens + TILE, dtype=dtype, device=device)
        self._causal[:, -TILE:] = torch.full((TILE, TILE), float("-inf"), device=device).triu(1)
        self._masks: list[Tensor] = []

    def prepare(self, batch: StepBatch) -> None:
        """Build what all layers of a step share."""
        self._masks = [self._mask(group) for group in batch.decodes]

    def __call__(self, layer: int, batch: StepBatch, queries: Tensor, out: Tensor) -> None:
        """Attend with `queries` [rows, heads, head_dim]; keys and values of the step are already in the cache. Writes `out`, same shape."""
        for group, mask in zip(batch.decodes, self._masks, strict=True):
            self._decode(layer, group, mask, queries, out)
        for part in batch.prefills:
            self._prefill(layer, part, queries, out)

    def _mask(self, group: DecodeGroup) -> Tensor:
        reach = torch.arange(group.blocks.shape[1] * self._kv.block_size, device=group.lengths.device)
        hidden = reach[None, :] >= group.lengths[:, None]
        return torch.zeros(hidden.shape, dtype=self._causal.dtype, device=hidden.device).masked_fill_(hidden, float("-inf"))[:, None, None]

    def _decode(self, layer: int, group: DecodeGroup, mask: Tensor, queries: Tensor, out: Tensor) -> None:
        keys, values = self._kv.gather(layer, group.blocks)
        folded = queries.index_select(0, group.rows).view(-1, self._num_kv_heads, self._group, self._head_dim)
        result = F.scaled_dot_product_attention(folded, keys, values, attn_mask=mask)
        out.index_copy_(0, group.rows, result.reshape(len(result), -1, self._head_dim))

    def _prefill(self, layer: int, part: PrefillPart, queries: Tensor, out: Tensor) -> None:
        keys, values = self._kv.gather(layer, part.blocks[None])
        first_tile, end_tile = part.start // TILE, -(-part.end // TILE)
        before, after = part.start - first_tile * TILE, end_tile * TILE - part.end
        rows = queries[part.first_row : part.first_row + part.end - part.start]
        tiles = F.pad(rows, (0, 0, 0, 0, before, after)).view(end_tile - first_tile, TILE, -1, self._head_dim)
        results = torch.empty_like(tiles)
        for index, tile in enumerate(tiles):
            reach = (first_tile + index + 1) * TILE
            mask = self._causal[:, self._max_tokens + TILE - reach :]
            result = F.scaled_dot_product_attention(
                tile.transpose(0, 1)[None], keys[:, :, :reach], values[:, :, :reach], attn_mask=mask, enable_gqa=True
            )
            results[index] = result[0].transpose(0, 1)
        out[part.first_row : part.first_row + len(rows)] = results.view(-1, *rows.shape[1:])[before : before + len(rows)]
