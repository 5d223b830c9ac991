"""The Triton decode kernel computes what torch computes, and compiles for the devices it is meant for."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from services.engine.kernels.triton.paged_decode import can_decode
from services.engine.llama import LlamaConfig
from services.engine.torch_runner.attention import TorchDecode
from services.engine.torch_runner.paged_kv import PagedKv
from services.engine.torch_runner.step_batch import DecodeGroup
from services.engine.torch_runner.triton_decode import TritonDecode
from tests.harness.triton_process import compiled_sizes, decode, triton_process

pytestmark = pytest.mark.timeout(180)
_BLOCKS, _BLOCK_SIZE, _KV_HEADS, _GROUP, _HEAD_DIM = 80, 16, 3, 3, 32


Decode = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, int], Tensor]


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Decode]:
    """The kernel in Triton's interpreter."""
    with triton_process(tmp_path_factory.mktemp("triton"), interpret=True) as executor:
        yield lambda *arguments: executor.submit(partial(decode, *arguments)).result(timeout=120)


@pytest.fixture(scope="module")
def kv() -> PagedKv:
    torch.set_num_threads(1)
    kv = PagedKv(1, _BLOCKS, _BLOCK_SIZE, _KV_HEADS, _HEAD_DIM, torch.float32, torch.device("cpu"))
    for at, pool in enumerate(kv.layer(0)):
        pool.copy_(torch.randn(pool.shape, generator=torch.Generator().manual_seed(at)))
        pool[-1] = float("nan")
    return kv


def group_of(lengths: list[int], spare: int = 0) -> DecodeGroup:
    """Random tables; the entries beyond a sequence's length point at the block that is not a number."""
    generator = torch.Generator().manual_seed(len(lengths))
    width = -(-max(lengths) // _BLOCK_SIZE) + spare
    blocks = torch.full((len(lengths), width), _BLOCKS - 1)
    for row, length in enumerate(lengths):
        used = -(-length // _BLOCK_SIZE)
        blocks[row, :used] = torch.randperm(_BLOCKS - 1, generator=generator)[:used]
    return DecodeGroup(torch.arange(len(lengths)), blocks, torch.tensor(lengths))


def queries_for(count: int) -> Tensor:
    """A slice of a wider tensor, as the fused product gives it."""
    return torch.randn(count, _KV_HEADS * (_GROUP + 2), _HEAD_DIM, generator=torch.Generator().manual_seed(9))[:, : _KV_HEADS * _GROUP]


def by_hand(kv: PagedKv, queries: Tensor, blocks: Tensor, length: int) -> Tensor:
    used = blocks[: -(-length // _BLOCK_SIZE)]
    keys, values = (pool[used].reshape(-1, _KV_HEADS, _HEAD_DIM)[:length].transpose(0, 1) for pool in kv.layer(0))
    return F.scaled_dot_product_attention(queries.reshape(_KV_HEADS, _GROUP, _HEAD_DIM), keys, values).reshape(-1, _HEAD_DIM)


@pytest.mark.parametrize("lengths", [[1], [16, 17], [31, 1, 33], [256, 257, 5], [700, 3]])
def test_kernel_agrees_with_torch(kernel: Decode, kv: PagedKv, lengths: list[int]) -> None:
    group, queries = group_of(lengths), queries_for(len(lengths))
    result = kernel(queries, *kv.layer(0), group.blocks, group.lengths, max(lengths))
    wanted = torch.stack([by_hand(kv, queries[row], group.blocks[row], length) for row, length in enumerate(lengths)])
    torch.testing.assert_close(result, wanted, rtol=1e-5, atol=1e-5)


def test_kernel_result_is_bit_equal_beside_longer_mates(kernel: Decode, kv: PagedKv) -> None:
    group, queries = group_of([20, 600, 300]), queries_for(3)
    together = kernel(queries, *kv.layer(0), group.blocks, group.lengths, 640)
    alone = kernel(queries[:1], *kv.layer(0), group.blocks[:1, :2], group.lengths[:1], 20)
    assert torch.equal(together[:1], alone)


def test_decode_attention_of_a_step_agrees_with_the_torch_one(kernel: Decode, kv: PagedKv) -> None:
    """Several groups, rows scattered over the batch; rows of nobody stay as they are."""
    config = LlamaConfig(1, 1, 1, 1, _KV_HEADS * _GROUP, _KV_HEADS, _HEAD_DIM, 1.0, 1.0, tied=True)
    groups = [replace(group_of([5, 9]), rows=torch.tensor([4, 0])), replace(group_of([100]), rows=torch.tensor([2]))]
    found = []
    for attention in (TorchDecode(kv, config, torch.float32), TritonDecode(kv, kernel)):
        out = torch.full((6, _KV_HEADS * _GROUP, _HEAD_DIM), 7.0)
        finite = [replace(group, blocks=group.blocks.clamp(max=_BLOCKS - 2)) for group in groups]
        attention.prepare(finite)
        attention(0, queries_for(6), out)
        found.append(out)
    assert (found[1][[1, 3, 5]] == 7.0).all()
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("head_dim", "heads", "kv_heads", "can"), [(64, 9, 3, True), (128, 64, 8, True), (80, 32, 32, False), (64, 34, 2, False)]
)
def test_can_decode_knows_the_shapes_of_the_kernel(head_dim: int, heads: int, kv_heads: int, can: bool) -> None:
    assert can_decode(head_dim, heads, kv_heads) is can


def test_kernel_compiles_for_cuda_without_a_device(tmp_path_factory: pytest.TempPathFactory) -> None:
    with triton_process(tmp_path_factory.mktemp("triton"), interpret=False) as executor:
        for kind, capability in (("fp32", 90), ("bf16", 80)):
            assert all(size > 1000 for size in executor.submit(compiled_sizes, kind, capability).result(timeout=120))
