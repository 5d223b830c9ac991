"""Batcher and torch runner together: neither company nor preemption changes one token of anybody's answer."""

from pathlib import Path

import pytest

from services.engine.model.importer import import_model
from services.engine.runner import RunnerSettings, SamplingParams
from services.engine.sequence import EndReason, Sequence
from services.engine.torch_runner.runner import TorchRunner
from tests.harness.batching import Bench
from tests.harness.tiny_gguf import TinyGguf

BLOCK_SIZE, NUM_BLOCKS = 16, 12


@pytest.fixture
def runner(tmp_path: Path) -> TorchRunner:
    version = import_model(TinyGguf().write(tmp_path / "tiny.gguf"), "tiny", tmp_path)
    settings = RunnerSettings(version.name, version.version, tmp_path, block_size=BLOCK_SIZE, num_blocks=NUM_BLOCKS)
    return TorchRunner.load(settings)


def make(index: int) -> Sequence:
    prompt = [(index * 17 + position * 5) % 200 + 3 for position in range(10 + 9 * (index % 4))]
    sampling = SamplingParams(temperature=0) if index % 2 else SamplingParams(temperature=1.0, top_p=0.9, seed=index)
    return Sequence(index, prompt, len(prompt), 30 + index % 5, sampling, ignore_eos=True)


def make_relative(index: int) -> Sequence:
    """One of a family: prompts that part ways within the first, the second or the third block."""
    common = [position * 5 % 200 + 3 for position in range(8 + 9 * (index % 4))]
    prompt = common + [index * 17 % 200 + 3] * (1 + index % 3)
    sampling = SamplingParams(temperature=0) if index % 2 else SamplingParams(temperature=1.0, seed=index)
    return Sequence(index, prompt, len(prompt), 20, sampling, ignore_eos=True, choice=index % 3)


def run(runner: TorchRunner, indexes: list[int]) -> Bench:
    bench = Bench(NUM_BLOCKS, BLOCK_SIZE, max_num_sequences=6, max_step_tokens=24, runner=runner)
    bench.add(*(make(index) for index in indexes))
    bench.run()
    return bench


def test_kv_pressure_and_batch_mates_change_no_token(runner: TorchRunner) -> None:
    indexes = list(range(1, 13))
    together = run(runner, indexes)
    assert together.batcher.load().num_preemptions > 0
    assert {ended.reason for ended in together.ends.values()} == {EndReason.LENGTH}
    for index in indexes:
        assert together.outputs[index] == run(runner, [index]).outputs[index]
    assert len({tuple(output) for output in together.outputs.values()}) > 6


def test_shared_blocks_and_copied_starts_of_blocks_change_no_token(runner: TorchRunner) -> None:
    indexes = list(range(1, 25))
    family = Bench(NUM_BLOCKS, BLOCK_SIZE, max_num_sequences=6, max_step_tokens=24, runner=runner)
    num_copies = 0
    for index in indexes:
        family.add(make_relative(index))
        num_copies += len(family.step().copies)
    family.run()
    assert num_copies > 0
    assert sum(family.num_cached.values()) > 100
    for index in indexes:
        alone = Bench(NUM_BLOCKS, BLOCK_SIZE, runner=runner, max_step_tokens=64)
        alone.add(make_relative(index))
        alone.run()
        assert family.outputs[index] == alone.outputs[index]
