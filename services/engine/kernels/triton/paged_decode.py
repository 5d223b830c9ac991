"""Decode attention that reads keys and values through block tables, in place.

Flash-decoding (Dao et al., 2023): a context is cut into splits of a fixed number of positions, each split keeps a running softmax, and a
second kernel joins them. Splits are counted from position 0 whatever the batch is, so a sequence's result depends on itself only.
Kernel parameters carry no annotations but `tl.constexpr`: Triton compiles annotations too.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

_SPLIT = 256
"""Positions of one program; a context of n positions has ceil(n / _SPLIT) programs per KV head."""
_TILE = 32
"""Positions read at a time."""
_MIN_ROWS = 16
"""Fewest rows of a matrix product on tensor cores; the query heads of one KV head are padded to it."""


def can_decode(head_dim: int, num_heads: int, num_kv_heads: int) -> bool:
    """Whether the kernel computes this shape: head sizes that are powers of two from 16, groups of at most 16 heads."""
    return head_dim >= 16 and head_dim & (head_dim - 1) == 0 and num_heads // num_kv_heads <= _MIN_ROWS


def paged_decode(queries: Tensor, keys: Tensor, values: Tensor, blocks: Tensor, lengths: Tensor, max_length: int) -> Tensor:
    """One query token per sequence against its paged context.

    `queries` [n, heads, head_dim] (last dimension dense); `keys`, `values` [num_blocks, block_size, kv_heads, head_dim], equal strides;
    `blocks` [n, per_sequence] int64, rows dense; `lengths` [n] positions to attend to, each >= 1 and <= `max_length` (known on the host, so
    that the launch needs no copy back). Returns [n, heads, head_dim] in the type of the queries. No effect on its inputs.
    """
    count, num_heads, head_dim = queries.shape
    block_size, num_kv_heads = keys.shape[1], keys.shape[2]
    num_splits = triton.cdiv(max_length, _SPLIT)
    partial = torch.empty(count, num_heads, num_splits, head_dim, dtype=torch.float32, device=queries.device)
    peaks = torch.empty(count, num_heads, num_splits, dtype=torch.float32, device=queries.device)
    sums = torch.empty_like(peaks)
    out = torch.empty_like(queries, memory_format=torch.contiguous_format)
    _split_kernel[(count, num_kv_heads, num_splits)](
        queries, keys, values, blocks, lengths, partial, peaks, sums,
        head_dim**-0.5, queries.stride(0), queries.stride(1), keys.stride(0), keys.stride(1), keys.stride(2), blocks.stride(0), num_splits,
        GROUP=num_heads // num_kv_heads, ROWS=_MIN_ROWS, HEAD_DIM=head_dim, BLOCK_SIZE=block_size, SPLIT=_SPLIT, TILE=_TILE,
    )  # fmt: skip
    _join_kernel[(count, num_heads)](partial, peaks, sums, lengths, out, num_splits, HEAD_DIM=head_dim, SPLIT=_SPLIT)
    return out


@triton.jit  # type: ignore[untyped-decorator]
def _split_kernel(  # type: ignore[no-untyped-def]
    queries, keys, values, blocks, lengths, partial, peaks, sums,
    scale, query_row, query_head, pool_block, pool_token, pool_head, table_row, num_splits,
    GROUP: tl.constexpr, ROWS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr, SPLIT: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Softmax-weighted values of one split for the query heads of one KV head, with the peak and the sum that joining needs."""
    row, kv_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    length = tl.load(lengths + row)
    first = split * SPLIT
    if first >= length:
        return
    last = tl.minimum(first + SPLIT, length)
    heads, dims = tl.arange(0, ROWS), tl.arange(0, HEAD_DIM)
    real = heads < GROUP
    head = kv_head * GROUP + heads
    query = tl.load(queries + row * query_row + head[:, None] * query_head + dims[None, :], mask=real[:, None], other=0.0)
    peak = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    weighted = tl.zeros([ROWS, HEAD_DIM], tl.float32)
    for at in range(first, last, TILE):
        position = at + tl.arange(0, TILE)
        seen = position < last
        block = tl.load(blocks + row * table_row + position // BLOCK_SIZE, mask=seen, other=0)
        offset = block * pool_block + (position % BLOCK_SIZE) * pool_token + kv_head * pool_head
        key = tl.load(keys + offset[:, None] + dims[None, :], mask=seen[:, None], other=0.0)
        value = tl.load(values + offset[:, None] + dims[None, :], mask=seen[:, None], other=0.0)
        score = tl.dot(query, tl.trans(key), input_precision="ieee") * scale
        score = tl.where(seen[None, :], score, float("-inf"))
        higher = tl.maximum(peak, tl.max(score, axis=1))
        weight = tl.exp(score - higher[:, None])
        fade = tl.exp(peak - higher)
        total = total * fade + tl.sum(weight, axis=1)
        weighted = weighted * fade[:, None] + tl.dot(weight.to(value.dtype), value, input_precision="ieee")
        peak = higher
    at_split = (row * tl.num_programs(1) * GROUP + head) * num_splits + split
    tl.store(peaks + at_split, peak, mask=real)
    tl.store(sums + at_split, total, mask=real)
    tl.store(partial + at_split[:, None] * HEAD_DIM + dims[None, :], weighted, mask=real[:, None])


@triton.jit  # type: ignore[untyped-decorator]
def _join_kernel(  # type: ignore[no-untyped-def]
    partial, peaks, sums, lengths, out, num_splits, HEAD_DIM: tl.constexpr, SPLIT: tl.constexpr
):  # fmt: skip
    """One head of one sequence from its splits, first to last."""
    row, head = tl.program_id(0), tl.program_id(1)
    dims = tl.arange(0, HEAD_DIM)
    index = row * tl.num_programs(1) + head
    used = tl.cdiv(tl.load(lengths + row), SPLIT)
    peak = tl.load(peaks + index * num_splits)
    total = tl.load(sums + index * num_splits)
    weighted = tl.load(partial + index * num_splits * HEAD_DIM + dims)
    for split in range(1, used):
        at = index * num_splits + split
        other = tl.load(peaks + at)
        higher = tl.maximum(peak, other)
        fade, grow = tl.exp(peak - higher), tl.exp(other - higher)
        total = total * fade + tl.load(sums + at) * grow
        weighted = weighted * fade + tl.load(partial + at * HEAD_DIM + dims) * grow
        peak = higher
    tl.store(out + index * HEAD_DIM + dims, (weighted / total).to(out.dtype.element_ty))
