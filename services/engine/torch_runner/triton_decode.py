"""Decode attention through the Triton kernel, which reads the KV cache in place."""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from services.engine.torch_runner.paged_kv import PagedKv
from services.engine.torch_runner.step_batch import DecodeGroup

Kernel = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, int], Tensor]
"""The signature of `kernels.triton.paged_decode.paged_decode`."""


class TritonDecode:
    """`DecodeAttention` in two launches per layer for all sequences of a step, whatever their lengths."""

    def __init__(self, kv: PagedKv, kernel: Kernel) -> None:
        self._kv = kv
        self._kernel = kernel
        self._joined: DecodeGroup | None = None
        self._max_length = 0

    def prepare(self, groups: Sequence[DecodeGroup]) -> None:
        """See `DecodeAttention`."""
        self._joined = _join(groups) if groups else None
        self._max_length = max((group.blocks.shape[1] for group in groups), default=0) * self._kv.block_size

    def __call__(self, layer: int, queries: Tensor, out: Tensor) -> None:
        """See `DecodeAttention`."""
        if self._joined is None:
            return
        keys, values = self._kv.layer(layer)
        chosen = queries.index_select(0, self._joined.rows)
        result = self._kernel(chosen, keys, values, self._joined.blocks, self._joined.lengths, self._max_length)
        out.index_copy_(0, self._joined.rows, result)


def _join(groups: Sequence[DecodeGroup]) -> DecodeGroup:
    width = max(group.blocks.shape[1] for group in groups)
    return DecodeGroup(
        rows=torch.cat([group.rows for group in groups]),
        blocks=torch.cat([F.pad(group.blocks, (0, width - group.blocks.shape[1])) for group in groups]),
        lengths=torch.cat([group.lengths for group in groups]),
    )
