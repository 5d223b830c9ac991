"""The KV cache: fixed blocks in one tensor, addressed through block tables.

Paged attention: Kwon et al., "Efficient memory management for large language model serving with PagedAttention", SOSP 2023.
"""

import torch
from torch import Tensor


class PagedKv:
    """Keys and values of all layers, [layers, 2, blocks, block_size, kv_heads, head_dim].

    Invariant: what a sequence can reach through its own table is finite or its own. A block that a step begins is cleared first, because
    attention multiplies masked positions by zero, and zero times a stranger's NaN is NaN.
    """

    def __init__(
        self, num_layers: int, num_blocks: int, block_size: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.block_size = block_size
        self.num_blocks = num_blocks
        self._kv = torch.empty(num_layers, 2, num_blocks, block_size, num_kv_heads, head_dim, dtype=dtype, device=device)
        self._slots = self._kv.view(num_layers, 2, num_blocks * block_size, num_kv_heads, head_dim)

    def copy(self, sources: Tensor, targets: Tensor) -> None:
        """Make the contents of blocks `targets` [n] those of `sources` [n] in every layer; no block is a target twice, nor both."""
        self._kv.index_copy_(2, targets, self._kv.index_select(2, sources))

    def clear(self, blocks: Tensor) -> None:
        """Zero `blocks` [n] in every layer."""
        if blocks.numel():
            self._kv.index_fill_(2, blocks, 0)

    def write(self, layer: int, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        """Store keys and values [n, kv_heads, head_dim] at `slots` [n]."""
        self._slots[layer, 0].index_copy_(0, slots, keys)
        self._slots[layer, 1].index_copy_(0, slots, values)

    def gather(self, layer: int, blocks: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of `blocks` [n, per_sequence] as [n, kv_heads, per_sequence * block_size, head_dim] (strided) copies."""
        count, per_sequence = blocks.shape
        flat = blocks.reshape(-1)
        shape = (count, per_sequence * self.block_size, *self._kv.shape[4:])
        keys = self._kv[layer, 0].index_select(0, flat).view(shape)
        values = self._kv[layer, 1].index_select(0, flat).view(shape)
        return keys.transpose(1, 2), values.transpose(1, 2)

    def layer(self, layer: int) -> tuple[Tensor, Tensor]:
        """The key and value pools of one layer, [blocks, block_size, kv_heads, head_dim], for kernels that read block tables."""
        return self._kv[layer, 0], self._kv[layer, 1]
