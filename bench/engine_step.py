"""How long one engine step takes, per runner: decodes of 1, 8 and 32 sequences, prompts of 128 and 1024 tokens.

Runners take turns within every round, so that foreign load hits all of them; quote the ratios, not the times.

    .venv/bin/python -m bench.engine_step --rounds 7 --json bench/results/engine_step.json
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random

from services.engine.cpu_runner.instruction_set import best_for, cpu_features
from services.engine.cpu_runner.runner import CpuRunner
from services.engine.model.card import load_card
from services.engine.model.importer import import_card
from services.engine.runner import ModelRunner, RunnerSettings, SamplingParams, SequenceSlice
from services.engine.runner_registry import make_runner
from services.kit.model_store import ModelVersion

_ROOT = Path(__file__).resolve().parents[1]
_CONTEXT = 192
_GREEDY = SamplingParams(temperature=0)
_RUNNERS = {
    "torch float32": ("torch", "float32"),
    "torch bfloat16": ("torch", "bfloat16"),
    "cpu 15 bits": ("cpu", "float32"),
    "cpu 8 bits": ("cpu", "bfloat16"),
}
CPU_RUNNERS = {label: dtype for label, (name, dtype) in _RUNNERS.items() if name == "cpu"}


@dataclass(frozen=True, slots=True)
class Shape:
    """One kind of step: `batch` sequences of which each brings `tokens` tokens after `context` others."""

    name: str
    batch: int
    context: int
    tokens: int

    def slices(self, block_size: int) -> list[SequenceSlice]:
        return [self._slice(index, self.context, self.tokens, block_size) for index in range(self.batch)]

    def contexts(self, block_size: int) -> list[SequenceSlice]:
        """The steps' past, to be computed once."""
        return [self._slice(index, 0, self.context, block_size) for index in range(self.batch if self.context else 0)]

    def _slice(self, index: int, start: int, count: int, block_size: int) -> SequenceSlice:
        blocks = -(-(self.context + self.tokens) // block_size)
        tokens = Random(index).choices(range(1000, 40000), k=count)
        table = list(range(index * blocks, (index + 1) * blocks))
        return SequenceSlice(index, tokens, start, table, _GREEDY, samples=True, output_position=1 if start else 0)


SHAPES = (
    *(Shape(f"decode {batch}", batch, _CONTEXT, 1) for batch in (1, 8, 32)),
    *(Shape(f"prefill {tokens}", 1, 0, tokens) for tokens in (128, 1024)),
)


@dataclass(frozen=True, slots=True)
class Row:
    """What one runner took for one shape: medians over rounds, the ratio taken within each round."""

    shape: str
    runner: str
    ms: float
    min_ms: float
    tok_s: float
    times_torch_float32: float
    parts: dict[str, float]
    """Milliseconds by part of a step, as the calling thread spends them; empty where the runner cannot tell."""

    def __str__(self) -> str:
        return f"{self.shape:13} {self.runner:15} {self.ms:9.2f} ms  {self.tok_s:7.0f} tok/s  x{self.times_torch_float32:.2f}"


def measure(runner: ModelRunner, shape: Shape, steps: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Median milliseconds of `steps` steps after one that warms up."""
    return statistics.median(step_times(runner, shape, steps, clock))


def step_times(runner: ModelRunner, shape: Shape, steps: int, clock: Callable[[], float] = time.perf_counter) -> list[float]:
    """Milliseconds of each of `steps` steps after one that warms up."""
    for part in shape.contexts(runner.info.block_size):
        runner.step([part])
    slices = shape.slices(runner.info.block_size)
    runner.step(slices)
    taken = []
    for _ in range(steps):
        begin = clock()
        runner.step(slices)
        taken.append(1000 * (clock() - begin))
    return taken


def parts(runner: ModelRunner, shape: Shape, steps: int) -> dict[str, float]:
    """Milliseconds of a step by part, a mean of `steps` steps."""
    if not isinstance(runner, CpuRunner):
        return {}
    runner.profile()
    step_times(runner, shape, 0)
    runner.profile()
    slices = shape.slices(runner.info.block_size)
    for _ in range(steps):
        runner.step(slices)
    return {part: round(taken / steps, 3) for part, taken in runner.profile().items()}


def cpu_runner(version: ModelVersion, home: Path, dtype: str, threads: int) -> CpuRunner:
    """The runner as it is measured."""
    return CpuRunner.load(RunnerSettings(version.name, version.version, home, dtype=dtype, threads=threads, num_blocks=512))


def run(runners: dict[str, ModelRunner], rounds: int) -> list[Row]:
    """Every runner and shape, the runners in turns."""
    rows = []
    for shape in SHAPES:
        steps = 3 if shape.tokens > 1 else 10
        times: dict[str, list[float]] = {name: [] for name in runners}
        for _ in range(rounds):
            for name, runner in runners.items():
                times[name].append(measure(runner, shape, steps))
        rows += [_row(shape, name, times[name], times["torch float32"]) for name in runners]
        print("\n".join(str(row) for row in rows[-len(runners) :]), flush=True)
    # In the end, since a runner that was asked for its parts goes on counting.
    return [replace(row, parts=parts(runners[row.runner], shape, 3)) for shape in SHAPES for row in rows if row.shape == shape.name]


def _row(shape: Shape, runner: str, times: list[float], base: list[float]) -> Row:
    middle = statistics.median(times)
    return Row(
        shape=shape.name,
        runner=runner,
        ms=round(middle, 2),
        min_ms=round(min(times), 2),
        tok_s=round(1000 * shape.batch * shape.tokens / middle, 1),
        times_torch_float32=round(statistics.median(one / own for one, own in zip(base, times, strict=True)), 2),
        parts={},
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--home", type=Path, default=_ROOT / ".inferway" / "test-models", help="store of the model")
    parser.add_argument("--card", type=Path, default=_ROOT / "models" / "smollm2-135m-instruct.yaml", help="model to measure")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="where to write the rows")
    given = parser.parse_args(arguments)
    version = import_card(load_card(given.card), given.home)
    runners: dict[str, ModelRunner] = {}
    for label, (name, dtype) in _RUNNERS.items():
        settings = RunnerSettings(version.name, version.version, given.home, dtype=dtype, threads=given.threads, num_blocks=512)
        runners[label] = make_runner(name, settings)
        print(f"{label}: {runners[label].info.quality}")
    machine = {"cpus": os.cpu_count(), "load": os.getloadavg()[0], "kernels": best_for(cpu_features()).value, "threads": given.threads}
    measured = run(runners, given.rounds)
    for row in measured:
        if row.parts:
            print(f"{row.shape:13} {row.runner:15} " + ", ".join(f"{part} {taken:.2f}" for part, taken in row.parts.items()))
    rows = [asdict(row) for row in measured]
    if given.json:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(
            json.dumps({"model": version.name, "machine": machine, "rounds": given.rounds, "rows": rows}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
