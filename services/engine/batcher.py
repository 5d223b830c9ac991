"""Continuous batching: which tokens of which sequences one step computes, and what its results mean for them.

Pure state: no clock, no thread, no numeric library. The rule of a step, in order: late sequences are dropped; every decoding sequence gets
one token; what is left of the token budget goes to prompts, those of waiting sequences included, by `prefill_turns`, and in a step without
prompts half of it to drafts of the next tokens, shared out evenly. A waiting sequence is admitted at its first turn, if there is a place
and blocks for all its tokens; cached blocks count as free. One that does not fit lets MAX_OVERTAKES later ones pass, then nobody. One that
lacks a block that is being computed for another waits for it, in nobody's way.

When a decode finds no free block the youngest sequence is preempted: it gives all blocks back and is computed again later, as far as the
prefix cache has lost it, from the tokens it already has, so its output does not change. The oldest is never preempted by others, so there
is always progress.
"""

import bisect
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from services.engine.batch_load import BatchLoad
from services.engine.block_pool import OutOfBlocks
from services.engine.drafter import Drafter, Odds, price
from services.engine.plan import Begun, Plan, StepEvents, slice_of
from services.engine.prefill_turns import Want, prefill_turns
from services.engine.prefix_cache import PrefixCache
from services.engine.runner import Drawn, SequenceSlice, StepOutput
from services.engine.sequence import Ended, EndReason, PromptLogprobs, Sampled, Sequence

MAX_OVERTAKES = 16


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Bounds of one replica. `max_step_tokens` must be at least `max_num_sequences`, so that decodes always fit."""

    max_num_sequences: int
    max_step_tokens: int
    max_num_waiting: int
    max_context_tokens: int
    max_drafts: int = 0
    """Most drafts of one sequence in one step; 0 turns speculation off."""

    def __post_init__(self) -> None:
        fitting = 1 <= self.max_num_sequences <= self.max_step_tokens and self.max_context_tokens >= 1
        if not fitting or min(self.max_num_waiting, self.max_drafts) < 0:
            raise ValueError(f"limits do not fit together: {self}")


class Batcher:
    """Owns all sequences and their blocks. Used by the step thread only."""

    def __init__(self, limits: BatchLimits, cache: PrefixCache, eos_token_ids: Collection[int]) -> None:
        self._limits = limits
        self._cache = cache
        self._eos = frozenset(eos_token_ids)
        self._running: list[Sequence] = []
        self._waiting: list[Sequence] = []
        self._arrivals = 0
        self._num_preemptions = 0
        self._odds = Odds()
        self._reserve = max(1, cache.pool.num_blocks // 100)

    @property
    def has_work(self) -> bool:
        """Whether any sequence runs or waits."""
        return bool(self._running or self._waiting)

    def load(self) -> BatchLoad:
        """The present size."""
        waiting_tokens = sum(sequence.num_uncomputed for sequence in self._waiting)
        waiting_tokens += sum(sequence.num_uncomputed for sequence in self._running if sequence.num_uncomputed > 1)
        pool = self._cache.pool
        return BatchLoad(
            num_running=len(self._running),
            num_waiting=len(self._waiting),
            num_waiting_tokens=waiting_tokens,
            num_used_blocks=pool.num_used,
            num_preemptions=self._num_preemptions,
            num_cached_blocks=pool.num_cached,
            num_evictions=pool.num_evictions,
            num_cache_query_tokens=self._cache.num_query_tokens,
            num_cache_hit_tokens=self._cache.num_hit_tokens,
        )

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
        decoding = [sequence for sequence in self._decoding() if self._grow(sequence)]
        budget = self._limits.max_step_tokens - len(decoding)
        self._schedule_prefills(plan, budget)
        budget = 0 if plan.slices else budget // 2
        slices = []
        for index, sequence in enumerate(decoding):
            drafts = self._drafts(sequence, budget // (len(decoding) - index), price(len(decoding)))
            budget -= len(drafts)
            slices.append(self._slice(sequence, 1, drafts))
        plan.slices[:0] = slices
        self._cache.unpin()
        return plan

    def postprocess(self, plan: Plan, outputs: list[StepOutput]) -> StepEvents:
        """Take the results of a step in: one output per slice, in order."""
        events = StepEvents()  # The changes of the cache include those of making the plan.
        by_id = {sequence.sequence_id: sequence for sequence in self._running}
        for part, output in zip(plan.slices, outputs, strict=True):
            sequence = by_id[part.sequence_id]
            ended = self._take(sequence, part, output, events)
            if ended is not None:
                self._running.remove(sequence)
                events.ended.append(ended)
        events.kv = self._cache.take_changes()
        return events

    def fail(self, plan: Plan) -> StepEvents:
        """The step of `plan` raised: every sequence in it ends with STEP_FAILED, the others are untouched."""
        planned = {part.sequence_id for part in plan.slices}
        failed = [sequence for sequence in self._running if sequence.sequence_id in planned]
        self._running = [sequence for sequence in self._running if sequence.sequence_id not in planned]
        return StepEvents(ended=[self._end(sequence, EndReason.STEP_FAILED, "the step of this sequence failed") for sequence in failed])

    def _take(self, sequence: Sequence, part: SequenceSlice, output: StepOutput, events: StepEvents) -> Ended | None:
        if output.error is not None:
            self._cache.drop(sequence)
            return self._end(sequence, EndReason.NON_FINITE_LOGITS, output.error)
        if output.prompt_logprobs:
            _take_prompt(sequence, part, output, events)
        num_computed = part.start + len(part.token_ids) - part.num_drafts + len(output.further)
        ended = self._take_tokens(sequence, output.drawn, events)
        if part.num_drafts and sequence.drafter is not None:
            sequence.drafter.learn(part.num_drafts, len(output.further))
            events.num_drafts += 1
            events.num_draft_tokens += part.num_drafts
            events.num_accepted_tokens += len(output.further)
        sequence.num_computed = min(num_computed, len(sequence.token_ids))  # Drafts behind the end were right for nobody.
        self._cache.commit(sequence)
        return None if ended is None else self._end(sequence, ended[0], stop_token_id=ended[1])

    def _take_tokens(self, sequence: Sequence, drawn: list[Drawn], events: StepEvents) -> tuple[EndReason, int | None] | None:
        """Append tokens up to the one that ends the sequence; why it ended, and the stop token."""
        enders = self._enders(sequence)
        for token in drawn:
            if token.token_id in enders:
                return EndReason.STOP, token.token_id
            sequence.token_ids.append(token.token_id)
            events.sampled.append(Sampled(sequence.sequence_id, token.token_id, token.logprobs))
            if len(sequence.token_ids) >= self._limits.max_context_tokens or sequence.num_output >= sequence.max_output_tokens:
                return EndReason.LENGTH, None
        return None

    def _enders(self, sequence: Sequence) -> frozenset[int]:
        """Tokens that end the sequence."""
        return sequence.stop_token_ids if sequence.ignore_eos else self._eos | sequence.stop_token_ids

    def _decoding(self) -> Iterator[Sequence]:
        """Running sequences that need one token, oldest first; skips those that are preempted on the way."""
        for sequence in list(self._running):
            if sequence.num_uncomputed == 1 and sequence.num_computed > 0:
                yield sequence

    def _schedule_prefills(self, plan: Plan, budget: int) -> None:
        """Share the budget out among prompts; waiting sequences are admitted at their first turn."""
        if budget <= 0:
            return
        queue = [sequence for sequence in self._running if sequence.num_uncomputed > 1 or sequence.num_computed == 0]
        wants = [Want(sequence.priority, sequence.num_uncomputed) for sequence in queue]
        for sequence, want in self._candidates():
            at = bisect.bisect(queue, sequence.order, key=_order)
            queue.insert(at, sequence)
            wants.insert(at, want)
        counts: dict[int, int] = {}
        for index, most in prefill_turns(wants, budget):
            sequence = queue[index]
            if budget > 0 and (sequence.is_running or self._admit(sequence, plan)):
                count = min(budget, most, sequence.num_uncomputed - counts.get(index, 0))
                counts[index] = counts.get(index, 0) + count
                budget -= count
        plan.slices += [self._slice(queue[index], count) for index, count in counts.items() if count]

    def _candidates(self) -> Iterator[tuple[Sequence, Want]]:
        """Waiting sequences for which there are places and blocks, in order, with what is left to compute of them."""
        places = self._limits.max_num_sequences - len(self._running)
        room = self._cache.pool.num_available - (self._reserve if self._running else 0)
        for sequence in self._waiting:
            if places <= 0:
                return
            fit = self._cache.fit(sequence)
            if fit.num_taken > room:
                if sequence.num_overtakes >= MAX_OVERTAKES:
                    return
            elif not self._cache.is_being_computed(sequence, fit, self._running):
                places -= 1
                room -= fit.num_taken
                yield sequence, Want(sequence.priority, len(sequence.token_ids) - len(fit.blocks) * self._cache.pool.block_size)

    def _admit(self, sequence: Sequence, plan: Plan) -> bool:
        """Move a waiting sequence into the batch, if it fits. Beside others a small reserve stays free, so that they can grow."""
        fit = self._cache.fit(sequence)
        if self._cache.is_being_computed(sequence, fit, self._running):
            return False
        try:
            plan.copies += self._cache.admit(sequence, fit, self._running, self._reserve if self._running else 0)
        except OutOfBlocks:
            return False
        for other in self._waiting[: self._waiting.index(sequence)]:
            other.num_overtakes += 1
        self._waiting.remove(sequence)
        bisect.insort(self._running, sequence, key=_order)
        sequence.is_running = True
        sequence.num_discarded += max(0, sequence.num_lost - sequence.num_computed)
        sequence.num_lost = 0
        plan.begun.append(Begun(sequence.sequence_id, sequence.num_cached))
        return True

    def _grow(self, sequence: Sequence) -> bool:
        """Make room for the next token, at the cost of younger sequences; False when the sequence itself had to go."""
        while sequence.num_computed > 0:
            try:
                self._cache.grow(sequence)
                return True
            except OutOfBlocks:
                self._preempt(self._running[-1])
        return False

    def _drafts(self, sequence: Sequence, most: int, price: float) -> list[int]:
        """Drafts for a decoding sequence, `most` at most and none that could not be kept; they take no block that others may need soon."""
        if sequence.sampling.is_penalised or sequence.num_output < sequence.min_output_tokens:
            return []
        most = min(most, self._limits.max_drafts, sequence.max_output_tokens - sequence.num_output - 1)
        most = min(most, self._limits.max_context_tokens - len(sequence.token_ids) - 1)
        if most <= 0:
            return []
        drafter = sequence.drafter = sequence.drafter or Drafter(self._odds, self._limits.max_drafts)
        drafts = drafter.propose(sequence.token_ids, most, price)
        if self._cache.pool.num_available < self._reserve + self._cache.pool.blocks_for(len(drafts)):
            return []
        self._cache.grow(sequence, len(drafts))
        return drafts

    def _preempt(self, sequence: Sequence) -> None:
        self._running.remove(sequence)
        self._cache.release(sequence)
        sequence.is_running = False
        sequence.num_lost, sequence.num_computed = sequence.num_computed, 0
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

    def _end(self, sequence: Sequence, reason: EndReason, detail: str = "", stop_token_id: int | None = None) -> Ended:
        self._cache.release(sequence)
        sequence.is_running = False
        return Ended(sequence.sequence_id, reason, sequence.num_discarded, detail, stop_token_id)

    def _slice(self, sequence: Sequence, count: int, drafts: Collection[int] = ()) -> SequenceSlice:
        forbidden = self._enders(sequence) if sequence.num_output < sequence.min_output_tokens else frozenset[int]()
        return slice_of(sequence, count, self._cache.pool.table(sequence.sequence_id), forbidden, drafts)


def _order(sequence: Sequence) -> tuple[float, int]:
    return sequence.order


def _take_prompt(sequence: Sequence, part: SequenceSlice, output: StepOutput, events: StepEvents) -> None:
    """Give out log-probabilities of positions from `part.start + 1` on, but none a second time after a preemption."""
    news = output.prompt_logprobs[max(0, sequence.num_prompt_logprobs_given - part.start) :]
    if news:
        events.prompt_logprobs.append(PromptLogprobs(sequence.sequence_id, news))
        sequence.num_prompt_logprobs_given += len(news)
