"""Whatever the order of arrivals, steps, cancels, deadlines and failures: no block is lost, shared wrongly or written while it is shared,
and every output is the solo output."""

import itertools
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from services.engine.sequence import EndReason, Sequence
from tests.harness.batching import Bench, Rehearsed, alone

FAMILIES = [[7, 7, 7, 7, 7, 7, 7, 7], [7, 7, 7, 9, 9, 9, 9, 9], [3, 4, 5, 6, 7, 8, 9, 10]]


class BatcherMachine(RuleBasedStateMachine):
    """A small pool under pressure, whose sequences have much in common."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench(num_blocks=8, block_size=4, max_num_sequences=3, max_step_tokens=9, max_num_waiting=4, max_drafts=5)
        self.wanted: dict[int, dict[str, Any]] = {}

    def make(self, sequence_id: int) -> Sequence:
        return Sequence(sequence_id, **{**self.wanted[sequence_id], "token_ids": list(self.wanted[sequence_id]["token_ids"])})

    @rule(
        family=st.sampled_from(FAMILIES),
        num_common=st.integers(0, 8),
        own=st.lists(st.sampled_from([7, 9]), min_size=1, max_size=3),
        max_output_tokens=st.integers(1, 7),
        priority=st.integers(0, 1),
        salt=st.sampled_from([b"", b"salt"]),
        wait_s=st.none() | st.integers(1, 6),
        mistakes=st.none() | st.lists(st.booleans(), min_size=1, max_size=5),
    )
    def arrive(
        self,
        family: list[int],
        num_common: int,
        own: list[int],
        max_output_tokens: int,
        priority: int,
        salt: bytes,
        wait_s: int | None,
        mistakes: list[bool] | None,
    ) -> None:
        token_ids = family[:num_common] + own
        sequence_id = len(self.wanted) + 1
        self.wanted[sequence_id] = {
            "token_ids": token_ids,
            "num_prompt": len(token_ids),
            "max_output_tokens": max_output_tokens,
            "priority": priority,
            "cache_salt": salt,
            "arrived_s": self.bench.now_s,
            "deadline_s": None if wait_s is None else self.bench.now_s + wait_s,
        }
        arriving = self.make(sequence_id)
        if mistakes is not None:
            solo = self.make(sequence_id)
            solo.deadline_s = None
            arriving.drafter = Rehearsed(alone(solo), len(token_ids), itertools.cycle(mistakes).__next__)
        self.bench.add(arriving)

    @rule(num_steps=st.integers(1, 4))
    def step(self, num_steps: int) -> None:
        for _ in range(num_steps):
            had_work = self.bench.batcher.has_work
            plan = self.bench.step()
            assert bool(plan.slices or plan.ended) == had_work

    @rule()
    def let_time_pass(self) -> None:
        self.bench.now_s += 1.0

    @precondition(lambda self: self.bench.batcher.load().num_running)
    @rule()
    def fail(self) -> None:
        self.bench.fail_step()

    @precondition(lambda self: self.wanted)
    @rule(data=st.data())
    def spoil(self, data: st.DataObject) -> None:
        self.bench.step(spoiled={data.draw(st.sampled_from(sorted(self.wanted)))})

    @precondition(lambda self: self.wanted)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        lost, failed = (data.draw(st.sampled_from(sorted(self.wanted))) for _ in range(2))
        self.bench.lose_step({lost}, failed={failed} - {lost})

    @precondition(lambda self: self.wanted)
    @rule(data=st.data(), reason=st.sampled_from([EndReason.CANCELLED, EndReason.STOP]))
    def stop(self, data: st.DataObject, reason: EndReason) -> None:
        self.bench.stop(data.draw(st.sampled_from(sorted(self.wanted))), reason)

    @invariant()
    def no_block_is_lost(self) -> None:
        self.bench.check()

    @invariant()
    def cached_tokens_are_fewer_than_the_prompt(self) -> None:
        assert all(num_cached < self.wanted[sequence_id]["num_prompt"] for sequence_id, num_cached in self.bench.num_cached.items())

    def teardown(self) -> None:
        self.bench.run()
        assert self.bench.pool.num_used == 0
        assert set(self.bench.ends) == set(self.wanted)
        for sequence_id, output in self.bench.outputs.items():
            subject = self.make(sequence_id)
            subject.deadline_s = None
            solo = alone(subject)
            assert output == solo[: len(output)]
            if self.bench.ends[sequence_id].reason is EndReason.LENGTH:
                assert output == solo


BatcherMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestBatcherMachine = BatcherMachine.TestCase
