"""The numbers of a sequence do not depend on who shares its step, where its prompt was cut or which blocks it has: bit for bit."""

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from services.engine.llama import read_config
from services.engine.model.importer import import_model
from services.engine.runner import SamplingParams, SequenceSlice
from services.engine.torch_runner.attention import StepAttention, TorchDecode, TorchPrefill
from services.engine.torch_runner.llama import Llama, rotate
from services.engine.torch_runner.paged_kv import PagedKv
from services.engine.torch_runner.step_batch import build_batch
from services.engine.torch_runner.weights import load_weights, rotary_pairs
from services.kit.model_store import ModelVersion
from tests.harness.tiny_gguf import TinyGguf

_CPU = torch.device("cpu")
_BLOCKS, _BLOCK_SIZE = 64, 16
Compute = Callable[[list[SequenceSlice]], Tensor]


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> ModelVersion:
    home = tmp_path_factory.mktemp("tiny")
    return import_model(TinyGguf().write(home / "tiny.gguf"), "tiny", home)


@pytest.fixture
def compute(version: ModelVersion) -> Compute:
    """The forward pass of a fresh KV pool whose every number is NaN until it is written."""
    torch.set_num_threads(1)
    config = read_config(version)
    kv = PagedKv(config.num_layers, _BLOCKS, _BLOCK_SIZE, config.num_kv_heads, config.head_dim, torch.float32, _CPU)
    for layer in range(config.num_layers):
        for pool in kv.layer(layer):
            pool.fill_(float("nan"))
    prefill = TorchPrefill(kv, config, version.max_context_tokens, torch.float32, _CPU)
    attention = StepAttention(TorchDecode(kv, config, torch.float32), prefill)
    llama = Llama(config, load_weights(version, config, _CPU, torch.float32), kv, attention, version.max_context_tokens)

    def run(slices: list[SequenceSlice]) -> Tensor:
        with torch.inference_mode():
            return llama.forward(build_batch(slices, _BLOCK_SIZE, 2, _CPU))

    return run


def part(tokens: list[int], start: int, table: list[int], samples: bool = True, output_position: int = 0) -> SequenceSlice:
    return SequenceSlice(table[0], tokens, start, table, SamplingParams(temperature=0), samples, output_position=output_position)


def prompt(length: int, seed: int) -> list[int]:
    return torch.randint(3, 260, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 31, 33, 70])
def test_prefill_beside_others_is_bit_equal_to_alone(compute: Compute, length: int) -> None:
    tokens = prompt(length, 1)
    alone = compute([part(tokens, 0, [0, 1, 2, 3, 4])])
    mates = [part(prompt(40, seed), 0, [10 * seed + at for at in range(4)]) for seed in (1, 2, 3)]
    together = compute([*mates, part(tokens, 0, [5, 50, 6, 51, 7])])
    assert torch.equal(together[3:], alone)


@pytest.mark.parametrize("cuts", [[1], [16], [31, 33], [5, 6, 7, 8], [32, 64], [69], list(range(1, 70))])
def test_prefill_cut_anywhere_is_bit_equal_to_whole(compute: Compute, cuts: list[int]) -> None:
    tokens = prompt(70, 2)
    whole = compute([part(tokens, 0, [0, 1, 2, 3, 4])])
    edges = [0, *cuts, 70]
    for begin, end in pairwise(edges):
        logits = compute([part(tokens[begin:end], begin, [9, 8, 7, 6, 5], samples=end == 70)])
    assert torch.equal(logits, whole)


@pytest.mark.parametrize("mates", [1, 2, 6])
def test_decode_beside_others_is_bit_equal_to_alone(compute: Compute, mates: int) -> None:
    tables = [[at * 6 + index for index in range(6)] for at in range(8)]
    lengths = [20, 1, 33, 64, 90, 47, 48, 5][: mates + 1]
    for at, length in enumerate(lengths):
        compute([part(prompt(length, at), 0, tables[at])])
    decodes = [part([7 + at], length, tables[at], output_position=1) for at, length in enumerate(lengths)]
    alone = torch.cat([compute([decode]) for decode in decodes])
    chunk = part(prompt(23, 9), 0, [60, 61])
    assert torch.equal(compute([*decodes[:1], chunk, *decodes[1:]])[[0, *range(2, mates + 2)]], alone)


def test_decode_agrees_with_prefill_of_the_same_tokens(compute: Compute) -> None:
    tokens = prompt(40, 3)
    whole = compute([part(tokens, 0, [0, 1, 2])])
    compute([part(tokens[:20], 0, [3, 4, 5])])
    for at in range(20, 40):
        logits = compute([part(tokens[at : at + 1], at, [3, 4, 5], output_position=at)])
    torch.testing.assert_close(logits, whole, rtol=1e-4, atol=1e-4)


def test_shared_prefix_blocks_serve_another_sequence(compute: Compute) -> None:
    tokens = prompt(50, 4)
    whole = compute([part(tokens, 0, [0, 1, 2, 3])])
    assert torch.equal(compute([part(tokens[32:], 32, [0, 1, 8, 9])]), whole)
    assert torch.equal(compute([part(tokens[49:], 49, [0, 1, 2, 3])]), whole)


def test_blocks_of_a_broken_sequence_are_clean_for_the_next_one(compute: Compute) -> None:
    """The fixture's pool is NaN everywhere, which is what a broken sequence leaves behind."""
    logits = compute([part(prompt(17, 5), 0, [0, 1]), part(prompt(3, 6), 0, [2])])
    logits = torch.cat([logits, compute([part([5], 17, [0, 1], output_position=1), part([6], 3, [2], output_position=1)])])
    assert torch.isfinite(logits).all()


def test_forward_without_a_sampled_row_has_no_logits(compute: Compute) -> None:
    assert compute([part(prompt(5, 7), 0, [0], samples=False)]).shape == (0, 263)


def test_rotate_turns_reordered_heads_as_the_published_formula_does() -> None:
    """Scores of turned queries and keys equal those of the half-split form: x cos + rotate_half(x) sin."""
    weights = torch.randn(2, 2 * 8, 5, generator=torch.Generator().manual_seed(0))
    x = torch.randn(3, 5, generator=torch.Generator().manual_seed(1))
    angles = torch.tensor([0.0, 1.0, 5.0])[:, None] * torch.tensor([1.0, 0.1, 0.01, 0.001])
    cos, sin = angles.cos().repeat(1, 2)[:, None], angles.sin().repeat(1, 2)[:, None]

    def published(weight: Tensor) -> Tensor:
        heads = (x @ weight.T).view(3, 2, 8)
        return heads * cos + torch.cat([-heads[..., 4:], heads[..., :4]], dim=-1) * sin

    def ours(weight: Tensor) -> Tensor:
        return rotate((x @ rotary_pairs(weight, 8).T).view(3, 2, 8), torch.complex(angles.cos(), angles.sin())[:, None])

    wanted = torch.einsum("qhd,khd->hqk", published(weights[0]), published(weights[1]))
    torch.testing.assert_close(torch.einsum("qhd,khd->hqk", ours(weights[0]), ours(weights[1])), wanted)
