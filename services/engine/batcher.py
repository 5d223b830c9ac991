"""Continuous batching: which tokens of which sequences one step computes, and what its results mean for them.

Pure state: no clock, no thread, no numeric library. The rule of a step, in order: late sequences are dropped; every decoding sequence gets
one token; what is left of the token budget goes to prefill chunks, oldest first; then waiting sequences are admitted while budget, places
and KV blocks last. When a decode finds no free block the youngest sequence is preempted: it gives all blocks back and is computed again
later, from the tokens it already has, so its output does not change. The oldest is never preempted by others, so there is always progress.
"""

import bisect
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

from services.engine.block_pool import BlockPool, OutOfBlocks
from services.engine.runner import SequenceSlice, StepOutput
from services.engine.sequence import Ended, EndReason, PromptLogprobs, Sampled, Sequence


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Bounds of one replica. `max_step_tokens` must be at least `max_num_sequences`, so that decodes always fit."""

    max_num_sequences: int
    max_step_tokens: int
    max_num_waiting: int
    max_context_tokens: int

    def __post_init__(self) -> None:
        if not 1 <= self.max_num_sequences <= self.max_step_tokens or self.max_num_waiting < 0 or self.max_context_tokens < 1:
            raise ValueError(f"limits do not fit together: {self}")


@dataclass(slots=True)
class Plan:
    """What one step computes, and who was dropped while planning."""

    slices: list[SequenceSlice] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    copies: list[tuple[int, int]] = field(default_factory=list)
    """Blocks to copy (from, to) before the step, which writes no position that was copied."""

    @property
    def num_tokens(self) -> int:
        """Tokens that the step computes."""
        return sum(len(part.token_ids) for part in self.slices)

    @property
    def begun(self) -> list[int]:
        """Sequences that the step computes from their first token on."""
        return [part.sequence_id for part in self.slices if part.start == 0]


@dataclass(slots=True)
class StepEvents:
    """What a step did to sequences. Of one sequence, prompt log-probabilities come before its first token and a token before its end."""

    sampled: list[Sampled] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    prompt_logprobs: list[PromptLogprobs] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class BatchLoad:
    """Size of everything in the batcher at one moment."""

    num_running: int = 0
    num_waiting: int = 0
    num_waiting_tokens: int = 0
    """Prompt tokens that are not computed yet, of waiting and of running sequences."""
    num_used_blocks: int = 0
    num_preemptions: int = 0
    """Since the start."""


class Batcher:
    """Owns all sequences and their blocks. Used by the step thread only."""

    def __init__(self, limits: BatchLimits, pool: BlockPool, eos_token_ids: Collection[int]) -> None:
        self._limits = limits
        self._pool = pool
        self._eos = frozenset(eos_token_ids)
        self._running: list[Sequence] = []
        self._waiting: list[Sequence] = []
        self._arrivals = 0
        self._num_preemptions = 0
        self._reserve = max(1, pool.num_blocks // 100)

    @property
    def has_work(self) -> bool:
        """Whether any sequence runs or waits."""
        return bool(self._running or self._waiting)

    def load(self) -> BatchLoad:
        """The present size."""
        waiting_tokens = sum(sequence.num_uncomputed for sequence in self._waiting)
        waiting_tokens += sum(sequence.num_uncomputed for sequence in self._running if sequence.num_uncomputed > 1)
        return BatchLoad(len(self._running), len(self._waiting), waiting_tokens, self._pool.num_used, self._num_preemptions)

    def add(self, sequence: Sequence) -> Ended | None:
        """Take a sequence in; returns its end (QUEUE_FULL) when there is no place, neither in the batch nor in the waiting room.

        The caller has checked that prompt and output fit the context and the whole pool.
        """
        if len(self._running) + len(self._waiting) >= self._limits.max_num_sequences + self._limits.max_num_waiting:
            return Ended(sequence.sequence_id, EndReason.QUEUE_FULL, detail="the waiting room of this replica is full")
        self._arrivals += 1
        sequence.arrival = self._arrivals
        self._wait(sequence)
        return None

    def stop(self, sequence_id: int, reason: EndReason) -> Ended | None:
        """End one sequence and take its blocks back; None when it has ended before."""
        for sequences in (self._running, self._waiting):
            for sequence in sequences:
                if sequence.sequence_id == sequence_id:
                    sequences.remove(sequence)
                    return self._end(sequence, reason)
        return None

    def schedule(self, now_s: float) -> Plan:
        """Decide the next step. Its plan must go to `postprocess` or `fail` before the next call of any method.

        Each may get a part of its slices; what neither gets was not computed and is planned again.
        """
        plan = Plan(ended=self._drop_late(now_s))
        for sequence in self._decoding():
            if self._grow(sequence):
                plan.slices.append(self._slice(sequence, 1))
        budget = self._limits.max_step_tokens - len(plan.slices)
        prefills = self._prefilling()
        while budget > 0 and (prefill := next(prefills, None)) is not None:
            count = min(budget, prefill.num_uncomputed)
            plan.slices.append(self._slice(prefill, count))
            budget -= count
        return plan

    def postprocess(self, plan: Plan, outputs: list[StepOutput]) -> StepEvents:
        """Take the results of a step in: one output per slice, in order."""
        events = StepEvents()
        by_id = {sequence.sequence_id: sequence for sequence in self._running}
        for part, output in zip(plan.slices, outputs, strict=True):
            sequence = by_id[part.sequence_id]
            sequence.num_computed += len(part.token_ids)
            reason = self._take(sequence, part, output, events)
            if reason is not None:
                self._running.remove(sequence)
                ended = self._end(sequence, reason, output.error or "")
                events.ended.append(replace(ended, stop_token_id=output.token_id) if reason is EndReason.STOP else ended)
        return events

    def fail(self, plan: Plan) -> StepEvents:
        """The step of `plan` raised: every sequence in it ends with STEP_FAILED, the others are untouched."""
        planned = {part.sequence_id for part in plan.slices}
        failed = [sequence for sequence in self._running if sequence.sequence_id in planned]
        self._running = [sequence for sequence in self._running if sequence.sequence_id not in planned]
        return StepEvents(ended=[self._end(sequence, EndReason.STEP_FAILED, "the step of this sequence failed") for sequence in failed])

    def _take(self, sequence: Sequence, part: SequenceSlice, output: StepOutput, events: StepEvents) -> EndReason | None:
        if output.error is not None:
            return EndReason.NON_FINITE_LOGITS
        if output.prompt_logprobs:
            self._take_prompt(sequence, part, output, events)
        if output.token_id is None:
            return None
        stops = output.token_id in self._enders(sequence)
        if stops and not (sequence.include_stop and output.token_id in sequence.stop_token_ids):
            return EndReason.STOP
        sequence.token_ids.append(output.token_id)
        events.sampled.append(Sampled(sequence.sequence_id, output.token_id, output.logprobs))
        if stops:
            return EndReason.STOP
        full = len(sequence.token_ids) >= self._limits.max_context_tokens
        return EndReason.LENGTH if full or sequence.num_output >= sequence.max_output_tokens else None

    def _take_prompt(self, sequence: Sequence, part: SequenceSlice, output: StepOutput, events: StepEvents) -> None:
        """Give out log-probabilities of positions from `part.start + 1` on, but none a second time after a preemption."""
        news = output.prompt_logprobs[max(0, sequence.num_prompt_logprobs_given - part.start) :]
        if news:
            events.prompt_logprobs.append(PromptLogprobs(sequence.sequence_id, news))
            sequence.num_prompt_logprobs_given += len(news)

    def _enders(self, sequence: Sequence) -> frozenset[int]:
        """Tokens that end the sequence."""
        return sequence.stop_token_ids if sequence.ignore_eos else self._eos | sequence.stop_token_ids

    def _decoding(self) -> Iterator[Sequence]:
        """Running sequences that need one token, oldest first; skips those that are preempted on the way."""
        for sequence in list(self._running):
            if sequence.num_uncomputed == 1 and sequence.num_computed > 0:
                yield sequence

    def _prefilling(self) -> Iterator[Sequence]:
        """Running sequences with more to compute, oldest first, then waiting ones, each admitted when it is asked for."""
        for sequence in list(self._running):
            if sequence.num_uncomputed > 1 or sequence.num_computed == 0:
                yield sequence
        while self._can_admit():
            sequence = self._waiting.pop(0)
            self._pool.cover(sequence.sequence_id, len(sequence.token_ids))
            bisect.insort(self._running, sequence, key=_order)
            yield sequence

    def _can_admit(self) -> bool:
        """Whether the first waiting sequence gets a place. Beside others a small reserve stays free, so that they can grow."""
        if not self._waiting or len(self._running) >= self._limits.max_num_sequences:
            return False
        reserve = self._reserve if self._running else 0
        return self._pool.num_free >= self._pool.blocks_for(len(self._waiting[0].token_ids)) + reserve

    def _grow(self, sequence: Sequence) -> bool:
        """Make room for the next token, at the cost of younger sequences; False when the sequence itself had to go."""
        while sequence.num_computed > 0:
            try:
                self._pool.cover(sequence.sequence_id, len(sequence.token_ids))
                return True
            except OutOfBlocks:
                self._preempt(self._running[-1])
        return False

    def _preempt(self, sequence: Sequence) -> None:
        self._running.remove(sequence)
        self._pool.release(sequence.sequence_id)
        sequence.num_discarded += sequence.num_computed
        sequence.num_computed = 0
        self._num_preemptions += 1
        self._wait(sequence)

    def _wait(self, sequence: Sequence) -> None:
        bisect.insort(self._waiting, sequence, key=_order)

    def _drop_late(self, now_s: float) -> list[Ended]:
        ended = []
        for sequences in (self._running, self._waiting):
            late = [sequence for sequence in sequences if sequence.deadline_s is not None and sequence.deadline_s <= now_s]
            for sequence in late:
                sequences.remove(sequence)
                ended.append(self._end(sequence, EndReason.DEADLINE))
        return ended

    def _end(self, sequence: Sequence, reason: EndReason, detail: str = "") -> Ended:
        self._pool.release(sequence.sequence_id)
        return Ended(sequence.sequence_id, reason, sequence.num_discarded, detail)

    def _slice(self, sequence: Sequence, count: int) -> SequenceSlice:
        start = sequence.num_computed
        end = start + count
        return SequenceSlice(
            sequence_id=sequence.sequence_id,
            token_ids=sequence.token_ids[start:end],
            start=start,
            block_table=list(self._pool.table(sequence.sequence_id)),
            sampling=sequence.sampling,
            samples=end == len(sequence.token_ids),
            choice=sequence.choice,
            output_position=sequence.num_output,
            context=sequence.token_ids,
            num_prompt=sequence.num_prompt,
            forbidden=self._enders(sequence) if sequence.num_output < sequence.min_output_tokens else frozenset(),
            num_logprobs=sequence.num_logprobs,
            num_prompt_logprobs=sequence.num_prompt_logprobs if sequence.num_prompt_logprobs_given < sequence.num_prompt - 1 else None,
        )


def _order(sequence: Sequence) -> tuple[int, int]:
    return sequence.order
