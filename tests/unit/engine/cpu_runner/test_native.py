"""A step's threads: whoever comes late or not at all, the numbers are the same; where the time goes can be asked for."""

import time
from pathlib import Path

import pytest

from services.engine.cpu_runner.native import PARTS
from services.engine.cpu_runner.runner import CpuRunner
from services.engine.model.importer import import_model
from services.engine.runner import RunnerSettings, SamplingParams, SequenceSlice
from tests.harness.cpu_kernels import share_kernels
from tests.harness.tiny_gguf import TinyGguf

pytestmark = pytest.mark.timeout(180)
_TABLE = [3, 1, 2, 0]


def load(home: Path, threads: int) -> CpuRunner:
    home.mkdir(exist_ok=True)
    import_model(TinyGguf().write(home / "tiny.gguf"), "tiny", share_kernels(home))
    return CpuRunner.load(RunnerSettings(model="tiny", home=home, num_blocks=8, threads=threads))


def part(start: int, count: int) -> SequenceSlice:
    tokens = [(position * 37) % 250 for position in range(start, start + count)]
    return SequenceSlice(1, tokens, start, _TABLE, SamplingParams(temperature=0), samples=True)


def test_profile_counts_from_the_first_call_to_the_next(tmp_path: Path) -> None:
    runner = load(tmp_path, threads=1)
    runner.step([part(0, 40)])
    assert runner.profile() == dict.fromkeys(PARTS, 0.0)
    begin = time.perf_counter()
    runner.step([part(0, 40)])
    taken = 1000 * (time.perf_counter() - begin)
    counted = runner.profile()
    assert 0 < sum(counted.values()) <= taken
    assert all(counted[name] > 0 for name in PARTS)
    assert sum(runner.profile().values()) == 0
    runner.close()


@pytest.mark.parametrize("threads", [2, 7])
def test_short_steps_of_more_threads_than_cpus_give_the_tokens_of_one(tmp_path: Path, threads: int) -> None:
    """Most of these threads wake up when the step is half over or gone: steps follow one another faster than threads are woken."""
    alone = load(tmp_path / "alone", threads=1)
    together = load(tmp_path / "together", threads)
    for runner in (alone, together):
        runner.step([part(0, 9)])
    for position in range(9, 60):
        wanted, found = (runner.step([part(position, 1)])[0].token_id for runner in (alone, together))
        assert found == wanted
    for _ in range(300):
        found = together.step([part(59, 1)])[0].token_id
        assert found == wanted
    alone.close()
    together.close()
