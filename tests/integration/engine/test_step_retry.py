"""Steps that fail after the runner has written into the KV pool are run again, on the real runners: nobody's tokens change."""

from collections.abc import Collection, Iterator, Sequence

import pytest

from services.engine.bisection import Bisection
from services.engine.model.importer import import_model
from services.engine.plan import Plan
from services.engine.runner import ModelRunner, RunnerSettings, SequenceSlice, StepOutput
from services.engine.runner_registry import make_runner
from services.engine.sequence import EndReason
from tests.harness.batching import Bench, sampled, sequence
from tests.harness.cpu_kernels import share_kernels
from tests.harness.tiny_gguf import TinyGguf

pytestmark = pytest.mark.timeout(180)

NUM_SEQUENCES = 9
BLOCK_SIZE, NUM_BLOCKS = 16, 40


class Faulty:
    """Computes, and then fails: with some sequences always, otherwise every so many calls."""

    def __init__(self, inner: ModelRunner, poisonous: Collection[int] = (), every: int = 0) -> None:
        self.info = inner.info
        self._inner = inner
        self._poisonous = poisonous
        self._every = every
        self._num_calls = 0

    def step(self, slices: Sequence[SequenceSlice]) -> list[StepOutput]:
        outputs = self._inner.step(slices)
        self._num_calls += 1
        if any(part.sequence_id in self._poisonous for part in slices) or (self._every and self._num_calls % self._every == 0):
            raise MemoryError
        return outputs

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        self._inner.copy_blocks(pairs)


class RetryingBench(Bench):
    """Steps as the step loop does them."""

    def step(self, spoiled: Collection[int] = ()) -> Plan:
        plan = self._schedule()
        result = Bisection(self.runner, lambda: None).compute(1, plan.slices)
        self._take(self.batcher.postprocess(Plan(result.computed), result.outputs))
        self._take(self.batcher.fail(Plan(result.culprits)))
        self.check()
        return plan


@pytest.fixture(params=["cpu", "torch"], scope="module")
def runner(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelRunner]:
    home = share_kernels(tmp_path_factory.mktemp("tiny"))
    import_model(TinyGguf().write(home / "tiny.gguf"), "tiny", home)
    loaded = make_runner(request.param, RunnerSettings(model="tiny", home=home, num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE))
    yield loaded
    loaded.close()


def answers(runner: ModelRunner, kind: type[Bench]) -> Bench:
    """Prompts that begin alike, greedy and sampled, in a pool that is too small for all."""
    bench = kind(NUM_BLOCKS, BLOCK_SIZE, max_step_tokens=48, runner=runner)
    for index in range(1, NUM_SEQUENCES + 1):
        fields = sampled(seed=index) if index % 2 else {}
        made = sequence(index, num_prompt=0, max_output_tokens=30, **fields)
        made.token_ids = [5 + token % 150 for token in range(20)] + [7 * index + token for token in range(10 * index)]
        made.num_prompt = len(made.token_ids)
        bench.add(made)
    bench.run()
    return bench


@pytest.mark.parametrize("every", [3, 5, 7])
def test_steps_that_fail_now_and_then_change_no_token(runner: ModelRunner, every: int) -> None:
    wanted = answers(runner, Bench).outputs
    found = answers(Faulty(runner, every=every), RetryingBench)  # type: ignore[arg-type]
    assert found.outputs == wanted
    assert EndReason.STEP_FAILED not in {ended.reason for ended in found.ends.values()}


def test_poisonous_sequences_end_and_all_others_get_the_tokens_that_they_get_without_them(runner: ModelRunner) -> None:
    wanted = answers(runner, Bench).outputs
    found = answers(Faulty(runner, poisonous=(4, 7)), RetryingBench)  # type: ignore[arg-type]
    assert {index for index, ended in found.ends.items() if ended.reason is EndReason.STEP_FAILED} == {4, 7}
    assert {index: tokens for index, tokens in found.outputs.items() if index not in (4, 7)} == {
        index: tokens for index, tokens in wanted.items() if index not in (4, 7)
    }
