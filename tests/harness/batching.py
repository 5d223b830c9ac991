"""Drives a batcher with the sim runner, step by step, and checks after every step that no block is lost."""

from collections.abc import Callable, Collection
from collections.abc import Sequence as Listing
from dataclasses import replace

from services.engine.batcher import Batcher, BatchLimits
from services.engine.block_hash import BlockHasher
from services.engine.block_pool import BlockPool
from services.engine.drafter import Drafter, Odds
from services.engine.plan import Plan, StepEvents
from services.engine.prefix_cache import PrefixCache
from services.engine.runner import ModelInfo, ModelRunner, SamplingParams, SequenceSlice
from services.engine.sequence import Ended, EndReason, Sequence
from services.engine.sim_runner import SimRunner

EOS = 0
VOCABULARY = range(1, 200)


def sim_runner(num_blocks: int = 64, block_size: int = 4, eos_every: int = 0) -> SimRunner:
    """A sim runner that takes no time."""
    info = ModelInfo("sim", "1", 200, 1000, frozenset({EOS}), block_size, num_blocks, "none", "sim", can_verify_drafts=True)
    runner = SimRunner(info, VOCABULARY, eos_every=eos_every, sleep=lambda _: None)
    runner.warm_up()
    return runner


def sequence(sequence_id: int, num_prompt: int = 5, max_output_tokens: int = 4, **fields: object) -> Sequence:
    """A sequence with a prompt of its own."""
    prompt = [(sequence_id * 31 + index * 7) % 190 + 1 for index in range(num_prompt)]
    return Sequence(sequence_id, prompt, num_prompt, max_output_tokens, **fields)  # type: ignore[arg-type]


def sampled(seed: int, choice: int = 0) -> dict[str, object]:
    """Fields of a sequence that is not greedy."""
    return {"sampling": SamplingParams(temperature=1.0, seed=seed), "choice": choice}


def new_cache(pool: BlockPool) -> PrefixCache:
    """A prefix cache over a pool."""
    return PrefixCache(pool, BlockHasher(pool.block_size, "sim", "1"))


class Bench:
    """One batcher, one runner, and everything that came out."""

    def __init__(
        self,
        num_blocks: int = 64,
        block_size: int = 4,
        max_num_sequences: int = 8,
        max_step_tokens: int = 16,
        max_num_waiting: int = 100,
        eos_every: int = 0,
        runner: ModelRunner | None = None,
        max_drafts: int = 0,
    ) -> None:
        self.pool = BlockPool(num_blocks, block_size)
        self.cache = new_cache(self.pool)
        self.runner = runner or sim_runner(num_blocks, block_size, eos_every)
        limits = BatchLimits(max_num_sequences, max_step_tokens, max_num_waiting, 1000, max_drafts)
        self.batcher = Batcher(limits, self.cache, {EOS})
        self.max_step_tokens = max_step_tokens
        self.outputs: dict[int, list[int]] = {}
        self.ends: dict[int, Ended] = {}
        self.num_cached: dict[int, int] = {}
        self.num_accepted = 0
        """Drafts that were right."""
        self.now_s = 0.0

    def add(self, *sequences: Sequence) -> None:
        """Take sequences in; an immediate end counts as an end."""
        for added in sequences:
            self.outputs[added.sequence_id] = []
            self._ended(self.batcher.add(added))

    def stop(self, sequence_id: int, reason: EndReason = EndReason.CANCELLED) -> None:
        """End a sequence from outside."""
        self._ended(self.batcher.stop(sequence_id, reason))
        self.check()

    def step(self, spoiled: Collection[int] = ()) -> Plan:
        """One step. What it computes for `spoiled` sequences is wrong, and known to be."""
        plan = self._schedule()
        outputs = self.runner.step([_spoiled(part) if part.sequence_id in spoiled else part for part in plan.slices])
        for output in outputs:
            if output.sequence_id in spoiled:
                output.token_id, output.error = None, "not finite"
        self._take(self.batcher.postprocess(plan, outputs))
        self.check()
        return plan

    def lose_step(self, lost: Collection[int], failed: Collection[int] = ()) -> Plan:
        """One step of which some sequences get nothing, to be computed by a later one, and some are found to be its fault."""
        plan = self._schedule()
        computed = [part for part in plan.slices if part.sequence_id not in {*lost, *failed}]
        self.runner.step([_spoiled(part) for part in plan.slices if part not in computed])
        self._take(self.batcher.postprocess(Plan(computed), self.runner.step(computed)))
        self._take(self.batcher.fail(Plan([part for part in plan.slices if part.sequence_id in failed])))
        self.check()
        return plan

    def fail_step(self) -> Plan:
        """One step whose runner raises, after it has computed something wrong."""
        plan = self._schedule()
        self.runner.step([_spoiled(part) for part in plan.slices])
        self._take(self.batcher.fail(plan))
        self.check()
        return plan

    def run(self, max_steps: int = 10_000, after_step: Callable[[], None] = lambda: None) -> None:
        """Steps until there is no work."""
        for _ in range(max_steps):
            if not self.batcher.has_work:
                return
            plan = self.step()
            assert plan.slices or plan.ended, "there is work and the step does nothing"
            after_step()
        raise AssertionError("the batcher does not come to an end")

    def check(self) -> None:
        """free + cached + referenced = total, and whoever uses blocks lives."""
        self.cache.check()
        load = self.batcher.load()
        assert load.num_used_blocks == self.pool.num_used
        assert self.pool.num_owners <= load.num_running

    def _schedule(self) -> Plan:
        plan = self.batcher.schedule(self.now_s)
        for ended in plan.ended:
            self._ended(ended)
        assert plan.num_tokens <= self.max_step_tokens
        assert len({part.sequence_id for part in plan.slices}) == len(plan.slices)
        for begun in plan.begun:
            self.num_cached.setdefault(begun.sequence_id, begun.num_cached)
        self._check_writes(plan)
        self.runner.copy_blocks(plan.copies)
        return plan

    def _check_writes(self, plan: Plan) -> None:
        """Nobody writes where somebody else reads."""
        size = self.pool.block_size
        written = [part.block_table[part.start // size : -(-(part.start + len(part.token_ids)) // size)] for part in plan.slices]
        targets = [target for _, target in plan.copies]
        assert all(self.pool.num_users(block) == 1 for blocks in [*written, targets] for block in blocks)
        assert len(set(targets)) == len(targets) and not set(targets) & {source for source, _ in plan.copies}

    def _take(self, events: StepEvents) -> None:
        self.num_accepted += events.num_accepted_tokens
        for token in events.sampled:
            assert token.sequence_id not in self.ends
            self.outputs[token.sequence_id].append(token.token_id)
        for ended in events.ended:
            self._ended(ended)

    def _ended(self, ended: Ended | None) -> None:
        if ended is not None:
            assert ended.sequence_id not in self.ends
            self.ends[ended.sequence_id] = ended


class Rehearsed(Drafter):
    """Knows the answer, and proposes it with mistakes."""

    def __init__(self, answer: Listing[int], num_before: int, mistakes: Callable[[], bool]) -> None:
        super().__init__(Odds(), len(answer))
        self._answer = answer
        self._num_before = num_before
        self._mistakes = mistakes

    def propose(self, token_ids: Listing[int], most: int, price: float) -> list[int]:
        """See Drafter."""
        begin = len(token_ids) - self._num_before
        return [token_id + 1 if self._mistakes() else token_id for token_id in self._answer[begin : begin + most]]


def _spoiled(part: SequenceSlice) -> SequenceSlice:
    """A slice that writes where `part` does, but something else."""
    return replace(part, token_ids=[token_id + 1 for token_id in part.token_ids])


def alone(subject: Sequence, eos_every: int = 0) -> list[int]:
    """The output of a sequence that has a replica for itself."""
    bench = Bench(num_blocks=256, eos_every=eos_every)
    bench.add(subject)
    bench.run()
    return bench.outputs[subject.sequence_id]
