"""The numbers of a sequence do not depend on batch mates, on where its prompt was cut, on its blocks or on the number of threads."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import gguf
import numpy as np
import pytest
import torch

from services.engine.cpu_runner.instruction_set import InstructionSet
from services.engine.cpu_runner.native import Floats
from services.engine.cpu_runner.runner import CpuRunner
from services.engine.model.importer import import_model
from services.engine.runner import RunnerSettings, SamplingParams, SequenceSlice
from tests.harness.cpu_kernels import LEVELS, share_kernels
from tests.harness.tiny_gguf import TinyGguf

pytestmark = pytest.mark.timeout(180)
_BLOCKS = 128
_LENGTHS = [1, 2, 15, 16, 17, 33, 70, 300]


_NUMERICS = [("Q4_1", "float32", "bfloat16"), ("Q8_0", "float32", "int8"), ("Q4_1", "bfloat16", "int8"), ("Q8_0", "bfloat16", "bfloat16")]
_PATHS = [(level, *numerics) for level in LEVELS for numerics in _NUMERICS]


@pytest.fixture(params=_PATHS, ids="-".join, scope="module")
def runner(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CpuRunner]:
    level, kind, dtype, kv_dtype = request.param
    yield (loaded := _load(tmp_path_factory, level, kind, dtype, kv_dtype))
    loaded.close()


def _load(folders: pytest.TempPathFactory, level: InstructionSet, kind: str, dtype: str, kv_dtype: str, threads: int = 1) -> CpuRunner:
    home = share_kernels(folders.mktemp("tiny"))
    tiny = TinyGguf(matrix_type=gguf.GGMLQuantizationType[kind])
    import_model(tiny.write(home / "tiny.gguf"), "tiny", home)
    settings = RunnerSettings(model="tiny", home=home, num_blocks=_BLOCKS, threads=threads, dtype=dtype, kv_dtype=kv_dtype)
    return CpuRunner.load(settings, level)


def part(tokens: list[int], start: int, table: list[int], samples: bool = True) -> SequenceSlice:
    return SequenceSlice(table[0], tokens, start, table, SamplingParams(temperature=0), samples)


def prompt(length: int, seed: int) -> list[int]:
    tokens: list[int] = torch.randint(3, 260, (length,), generator=torch.Generator().manual_seed(seed)).tolist()
    return tokens


def table(seed: int, length: int = 20) -> list[int]:
    return [(seed * 20 + index * 7) % _BLOCKS for index in range(length)]


def alone(runner: CpuRunner, tokens: list[int]) -> Floats:
    return runner.forward([part(tokens, 0, list(range(_BLOCKS - 20, _BLOCKS)))])[0][0].copy()


@pytest.mark.parametrize("length", _LENGTHS)
def test_prefill_beside_others_is_bit_equal_to_alone(runner: CpuRunner, length: int) -> None:
    wanted = [alone(runner, prompt(length, seed)) for seed in range(3)]
    mates = [part(prompt(11, 9), 0, [60]), part(prompt(40, 8), 0, [61, 62, 63])]
    mine = [part(prompt(length, seed), 0, list(range(20 * seed, 20 * seed + 20))) for seed in range(3)]
    found, _ = runner.forward([mates[0], *mine, mates[1]])
    assert all(np.array_equal(found[1 + at], wanted[at]) for at in range(3))


@pytest.mark.parametrize("cuts", [[1], [16], [7, 8, 41], list(range(1, 70)), [64, 69]])
def test_prompt_cut_anywhere_is_bit_equal_to_whole(runner: CpuRunner, cuts: list[int]) -> None:
    """One token at a time is what decoding does: a resumed sequence, which prefills what it had decoded, gets the same numbers."""
    tokens = prompt(70, 1)
    wanted = alone(runner, tokens)
    for first, last in pairwise([0, *cuts, len(tokens)]):
        mate = part(prompt(3, 2), 0, [100])
        found, _ = runner.forward([mate, part(tokens[first:last], first, [9, 4, 77, 50, 3])])
    assert np.array_equal(found[1], wanted)


@pytest.mark.parametrize("count", [2, 3, 5, 8, 9, 31])
def test_decode_in_a_batch_is_bit_equal_to_alone(runner: CpuRunner, count: int) -> None:
    lengths = [1 + (seed * 13) % 60 for seed in range(count)]
    wanted = [alone(runner, prompt(length, seed)) for seed, length in enumerate(lengths)]
    tables = [list(range(4 * seed, 4 * seed + 4)) for seed in range(count)]
    for seed, length in enumerate(lengths):
        if length > 1:
            runner.forward([part(prompt(length, seed)[:-1], 0, tables[seed], samples=False)])
    found, _ = runner.forward([part(prompt(length, seed)[-1:], length - 1, tables[seed]) for seed, length in enumerate(lengths)])
    assert all(np.array_equal(found[seed], wanted[seed]) for seed in range(count))


@pytest.mark.parametrize("level", LEVELS, ids=str)
def test_threads_change_no_bit(tmp_path_factory: pytest.TempPathFactory, level: InstructionSet) -> None:
    one, three = (_load(tmp_path_factory, level, "Q4_1", "float32", "bfloat16", threads) for threads in (1, 3))
    slices = [part(prompt(5 + 20 * seed, seed), 0, list(range(8 * seed, 8 * seed + 8))) for seed in range(5)]
    wanted = one.forward(slices)[0]
    assert all(np.array_equal(three.forward(slices)[0], wanted) for _ in range(10))
    one.close()
    three.close()


@pytest.mark.parametrize(("kind", "dtype", "kv_dtype"), _NUMERICS)
def test_builds_agree_bit_for_bit(tmp_path_factory: pytest.TempPathFactory, kind: str, dtype: str, kv_dtype: str) -> None:
    """A sequence may go on at a replica whose CPU has other registers."""
    found = [alone(_load(tmp_path_factory, level, kind, dtype, kv_dtype), prompt(70, 1)) for level in LEVELS]
    assert all(np.array_equal(logits, found[0]) for logits in found)


def test_logits_of_a_whole_prompt_are_those_of_its_tokens_one_by_one(runner: CpuRunner) -> None:
    tokens = prompt(20, 1)
    wanted = [runner.forward([part([token], at, [3, 4])])[0][0].copy() for at, token in enumerate(tokens)]
    asking = replace(part(tokens[3:], 3, [3, 4]), context=tokens, num_prompt=len(tokens), num_prompt_logprobs=0)
    mates = [part(prompt(5, 2), 0, [60]), part(prompt(5, 3), 0, [61], samples=False), part(prompt(5, 4), 0, [62])]
    found, best = runner.forward([mates[0], asking, *mates[1:]])
    assert len(found) == len(best) == 1 + 17 + 1
    assert all(np.array_equal(found[1 + at], wanted[3 + at]) for at in range(17))
    assert runner.step([mates[0], asking, *mates[1:]])[1].token_id == int(wanted[-1].argmax())


@pytest.mark.parametrize("kind", [SamplingParams(temperature=0), SamplingParams(temperature=1.0, seed=5)])
def test_drafts_give_the_tokens_of_steps_without_them_and_leave_the_same_cache(runner: CpuRunner, kind: SamplingParams) -> None:
    tokens, table = prompt(30, 1), [3, 4, 9]
    answer: list[int] = []
    while len(answer) < 12:
        context = tokens + answer
        begin = len(context) - 1 if answer else 0
        answer += [
            each.token_id
            for each in runner.step([replace(part(context[begin:], begin, table), sampling=kind, output_position=len(answer))])[0].drawn
        ]
    wrong = [*answer[:5], answer[5] + 1, *answer[6:8]]
    mates = [part(prompt(5, 2), 0, [60]), part(prompt(5, 3), 0, [61])]
    other = [5, 8, 21]
    found: list[int] = []
    for drafts in ([], wrong[1:], answer[6:8]):
        context = tokens + found
        begin = len(context) - 1 if found else 0
        asked = replace(part([*context[begin:], *drafts], begin, other), sampling=kind, output_position=len(found), num_drafts=len(drafts))
        found += [each.token_id for each in runner.step([mates[0], asked, mates[1]])[1].drawn]
    assert len(found) == 1 + 5 + 3
    assert found == answer[:9]


@pytest.mark.parametrize("length", [2, 5, 16, 70])
def test_rows_that_want_no_logits_change_neither_logits_nor_the_cache(runner: CpuRunner, length: int) -> None:
    """The last layer leaves them out; what it keeps of them is read by the next token."""
    tokens = prompt(length + 1, 3)
    one = part(tokens[:-1], 0, [11, 4, 90, 7, 25])
    every = replace(one, block_table=[30, 8, 51, 66, 2], context=tokens[:-1], num_prompt=length, num_prompt_logprobs=0)
    none = replace(one, block_table=[40, 41, 42, 43, 44], samples=False)
    mates = [part(prompt(9, 2), 0, [100], samples=False), part(prompt(9, 4), 0, [101])]
    found, _ = runner.forward([mates[0], one, none, mates[1], every])
    assert len(found) == 1 + 1 + length
    assert np.array_equal(found[0], found[-1])
    after, _ = runner.forward([part(tokens[-1:], length, list(piece.block_table)) for piece in (one, every, none)])
    assert np.array_equal(after[0], after[1])
    assert np.array_equal(after[2], after[1])


def test_copied_blocks_give_what_their_originals_give(runner: CpuRunner) -> None:
    """A sequence that goes on in copies, while the originals are overwritten, has the numbers of one that never moved."""
    tokens = prompt(40, 1)
    wanted = alone(runner, tokens)
    runner.forward([part(tokens[:37], 0, [5, 90, 33], samples=False)])
    runner.copy_blocks([(5, 7), (33, 8), (90, 100)])
    runner.forward([part(prompt(40, 2), 0, [5, 33, 90])])
    found, _ = runner.forward([part(tokens[37:], 37, [7, 100, 8])])
    assert np.array_equal(found[0], wanted)
