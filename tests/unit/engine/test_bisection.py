"""A step that fails: who pays for it, who does not, and how often the runner is asked."""

from collections.abc import Callable, Collection, Sequence

import pytest

from services.engine.bisection import Bisection, StepResult
from services.engine.plan import Plan
from services.engine.runner import SamplingParams, SequenceSlice, StepOutput
from services.engine.sequence import EndReason
from tests.harness.batching import Bench, alone, sequence, sim_runner

BLOCK_SIZE = 4
Fails = Callable[[int, Collection[int]], bool]
"""Whether the n-th call of the runner fails, given the sequences in it; the probe has none."""


class Runner:
    """Fails as told. Tokens are the sequence ids."""

    def __init__(self, fails: Fails) -> None:
        self.info = sim_runner(block_size=BLOCK_SIZE).info
        self.calls: list[list[int]] = []
        self.probes: list[SequenceSlice] = []
        self._fails = fails

    def step(self, slices: Sequence[SequenceSlice]) -> list[StepOutput]:
        if slices[0].token_ids == [0]:
            self.probes += slices
        self.calls.append([] if slices[0].token_ids == [0] else [part.sequence_id for part in slices])
        if self._fails(len(self.calls), self.calls[-1]):
            raise MemoryError
        return [StepOutput(part.sequence_id, part.sequence_id) for part in slices]


def part(sequence_id: int, num_tokens: int = 1) -> SequenceSlice:
    table = [10 * sequence_id, 10 * sequence_id + 1, 10 * sequence_id + 2]
    return SequenceSlice(sequence_id, [7] * num_tokens, 5, table, SamplingParams(), samples=True)


def compute(fails: Fails, num_sequences: int) -> tuple[Runner, StepResult, int]:
    runner, beats = Runner(fails), list[int]()
    result = Bisection(runner, lambda: beats.append(1)).compute(1, [part(index) for index in range(1, num_sequences + 1)])  # type: ignore[arg-type]
    assert [output.sequence_id for output in result.outputs] == [done.sequence_id for done in result.computed]
    assert len(beats) == len(runner.calls)
    return runner, result, len(runner.calls)


def ids(slices: Sequence[SequenceSlice]) -> list[int]:
    return sorted(one.sequence_id for one in slices)


def poison(*culprits: int) -> Fails:
    return lambda _, sequences: any(culprit in sequences for culprit in culprits)


@pytest.mark.parametrize("num_sequences", [1, 2, 3, 8, 31, 32])
def test_bisection_without_a_fault_runs_once(num_sequences: int) -> None:
    _, result, num_calls = compute(lambda call, sequences: False, num_sequences)
    assert ids(result.computed) == list(range(1, num_sequences + 1))
    assert (result.culprits, num_calls) == ([], 1)


@pytest.mark.parametrize(("num_sequences", "num_calls"), [(1, 2), (2, 3), (32, 3)])
def test_bisection_of_a_fault_that_does_not_come_again_loses_nobody(num_sequences: int, num_calls: int) -> None:
    _, result, needed = compute(lambda call, sequences: call == 1, num_sequences)
    assert ids(result.computed) == list(range(1, num_sequences + 1))
    assert (result.culprits, needed) == ([], num_calls)


@pytest.mark.parametrize(("num_sequences", "max_calls"), [(1, 3), (2, 4), (3, 7), (8, 9), (31, 13), (32, 13)])
def test_bisection_finds_one_culprit_anywhere_and_computes_all_others(num_sequences: int, max_calls: int) -> None:
    for culprit in range(1, num_sequences + 1):
        _, result, num_calls = compute(poison(culprit), num_sequences)
        assert ids(result.culprits) == [culprit]
        assert ids(result.computed) == [one for one in range(1, num_sequences + 1) if one != culprit]
        assert num_calls <= max_calls


@pytest.mark.parametrize("culprits", [(1, 2), (1, 32), (1, 9, 17, 25), tuple(range(1, 33)), tuple(range(2, 33, 2))])
def test_bisection_of_many_culprits_is_bounded_blames_no_other_and_gets_on(culprits: tuple[int, ...]) -> None:
    _, result, num_calls = compute(poison(*culprits), 32)
    assert num_calls <= 13
    assert result.culprits
    assert set(ids(result.culprits)) <= set(culprits)
    assert not set(ids(result.computed)) & set(culprits)


@pytest.mark.parametrize("num_sequences", [1, 2, 8, 32])
def test_bisection_of_a_broken_runner_says_so_after_few_runs(num_sequences: int) -> None:
    runner = Runner(lambda call, sequences: True)
    with pytest.raises(MemoryError):
        Bisection(runner, lambda: None).compute(1, [part(index) for index in range(num_sequences)])  # type: ignore[arg-type]
    assert len(runner.calls) <= (num_sequences - 1).bit_length() + 3


def test_bisection_probe_writes_only_into_the_culprits_own_last_block() -> None:
    runner, _, _ = compute(poison(2), 2)
    assert runner.probes == []  # That it works had been seen.
    runner, _, _ = compute(poison(1), 2)
    (probe,) = runner.probes
    assert (probe.block_table, probe.start, len(probe.token_ids)) == ([10 + 5 // BLOCK_SIZE], 0, 1)


class Poisoned:
    """The sim runner, except for some sequences: with those it fails after it has written."""

    def __init__(self, culprits: Collection[int]) -> None:
        self._inner = sim_runner()
        self._culprits = culprits
        self.info = self._inner.info

    def step(self, slices: Sequence[SequenceSlice]) -> list[StepOutput]:
        outputs = self._inner.step(slices)
        if any(one.sequence_id in self._culprits for one in slices):
            raise RuntimeError
        return outputs

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        self._inner.copy_blocks(pairs)


class BisectingBench(Bench):
    """Steps as the step loop does them."""

    def step(self) -> Plan:
        plan = self.batcher.schedule(self.now_s)
        self.runner.copy_blocks(plan.copies)
        result = Bisection(self.runner, lambda: None).compute(1, plan.slices)
        self._take(self.batcher.postprocess(Plan(slices=result.computed), result.outputs))
        self._take(self.batcher.fail(Plan(slices=result.culprits)))
        self.check()
        return plan


def test_bisection_keeps_outputs_of_everybody_else_as_if_the_culprits_had_not_been_there() -> None:
    bench = BisectingBench(runner=Poisoned({3, 5, 6}))  # type: ignore[arg-type]
    bench.add(*(sequence(index, num_prompt=3 * index, max_output_tokens=9) for index in range(1, 9)))
    bench.run()
    assert {index for index, ended in bench.ends.items() if ended.reason is EndReason.STEP_FAILED} == {3, 5, 6}
    for index in (1, 2, 4, 7, 8):
        assert bench.outputs[index] == alone(sequence(index, num_prompt=3 * index, max_output_tokens=9))
