"""Whatever the order of arrivals, steps, cancels, deadlines and failures: no block is lost and every output is the solo output."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from services.engine.sequence import EndReason, Sequence
from tests.harness.batching import Bench, alone, sequence


class BatcherMachine(RuleBasedStateMachine):
    """A small pool under pressure."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench(num_blocks=8, block_size=2, max_num_sequences=3, max_step_tokens=5, max_num_waiting=4)
        self.wanted: dict[int, dict[str, int]] = {}

    def make(self, sequence_id: int) -> Sequence:
        return sequence(sequence_id, **self.wanted[sequence_id])

    @rule(num_prompt=st.integers(1, 9), max_output_tokens=st.integers(1, 7), priority=st.integers(0, 1))
    def arrive(self, num_prompt: int, max_output_tokens: int, priority: int) -> None:
        sequence_id = len(self.wanted) + 1
        self.wanted[sequence_id] = {"num_prompt": num_prompt, "max_output_tokens": max_output_tokens, "priority": priority}
        self.bench.add(self.make(sequence_id))

    @rule()
    def step(self) -> None:
        had_work = self.bench.batcher.has_work
        assert bool(self.bench.step().slices) == had_work

    @precondition(lambda self: self.bench.batcher.load().num_running)
    @rule()
    def fail(self) -> None:
        self.bench.fail_step()

    @precondition(lambda self: self.wanted)
    @rule(data=st.data(), reason=st.sampled_from([EndReason.CANCELLED, EndReason.STOP]))
    def stop(self, data: st.DataObject, reason: EndReason) -> None:
        self.bench.stop(data.draw(st.sampled_from(sorted(self.wanted))), reason)

    @invariant()
    def no_block_is_lost(self) -> None:
        self.bench.check()

    def teardown(self) -> None:
        self.bench.run()
        assert self.bench.pool.num_used == 0
        assert set(self.bench.ends) == set(self.wanted)
        for sequence_id, output in self.bench.outputs.items():
            solo = alone(self.make(sequence_id))
            assert output == solo[: len(output)]
            if self.bench.ends[sequence_id].reason is EndReason.LENGTH:
                assert output == solo


BatcherMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestBatcherMachine = BatcherMachine.TestCase
