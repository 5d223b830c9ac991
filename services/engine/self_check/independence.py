"""Checks that an answer depends on its request alone, through the batcher and the prefix cache that serve, with small pools and budgets."""

from collections.abc import Sequence as Listing
from dataclasses import dataclass

from services.engine.batcher import Batcher, BatchLimits
from services.engine.block_hash import BlockHasher
from services.engine.block_pool import BlockPool
from services.engine.drafter import Drafter, Odds
from services.engine.prefix_cache import PrefixCache
from services.engine.runner import ModelRunner, SamplingParams
from services.engine.self_check.findings import Findings
from services.engine.sequence import Sequence

NUM_BLOCKS = 64
_FEW_BLOCKS = 9
_MAX_TOKENS = 20
_MAX_DRAFTS = 7
_EVERY = 5
"""Every so many drafts one is wrong."""
_PROMPTS = ((0, 40), (7, 17), (3, 50), (60, 33), (21, 1), (90, 45), (11, 16), (50, 30))
"""Where in the text each prompt begins and how many tokens it has."""
_KINDS = (
    SamplingParams(temperature=0),
    SamplingParams(temperature=0.9, top_p=0.95, seed=7, repetition_penalty=1.2),
    SamplingParams(temperature=0, frequency_penalty=0.5),
    SamplingParams(temperature=1.1, top_k=50, min_p=0.02, seed=8),
)


@dataclass(frozen=True, slots=True)
class Case:
    """One request: a prompt, how it is sampled, and the tokens it has already."""

    prompt: tuple[int, ...]
    sampling: SamplingParams
    delivered: tuple[int, ...] = ()

    def sequence(self, sequence_id: int, drafter: Drafter | None = None) -> Sequence:
        """For the batcher."""
        tokens, count = [*self.prompt, *self.delivered], len(self.delivered)
        return Sequence(sequence_id, tokens, len(self.prompt), _MAX_TOKENS, self.sampling, count, ignore_eos=True, drafter=drafter)


class _Rehearsed(Drafter):
    """Knows the answer, and proposes it with mistakes."""

    def __init__(self, num_prompt: int, answer: Listing[int]) -> None:
        super().__init__(Odds(), _MAX_DRAFTS)
        self._num_prompt = num_prompt
        self._answer = answer

    def propose(self, token_ids: Listing[int], most: int, price: float) -> list[int]:
        """See Drafter."""
        begin = len(token_ids) - self._num_prompt
        ahead = self._answer[begin : begin + most]
        return [self._answer[0] if at % _EVERY == 0 else token_id for at, token_id in enumerate(ahead, begin)]


class Bench:
    """A batcher with a prefix cache over one runner; every step is followed by a check of all blocks."""

    def __init__(self, runner: ModelRunner, num_sequences: int, num_tokens: int, num_blocks: int = NUM_BLOCKS, max_drafts: int = 0) -> None:
        info = runner.info
        self._runner = runner
        self._cache = PrefixCache(BlockPool(num_blocks, info.block_size), BlockHasher(info.block_size, info.name, info.version))
        limits = BatchLimits(num_sequences, num_tokens, 1000, info.max_context_tokens, max_drafts)
        self._batcher = Batcher(limits, self._cache, info.eos_token_ids)
        self.num_steps = 0
        self.num_accepted = 0
        """Drafts that were right."""

    @property
    def num_preemptions(self) -> int:
        """So far."""
        return self._batcher.load().num_preemptions

    @property
    def num_cached(self) -> int:
        """Prompt tokens that came from the cache so far."""
        return self._batcher.load().num_cache_hit_tokens

    @property
    def num_used_blocks(self) -> int:
        """Blocks that somebody uses."""
        return self._batcher.load().num_used_blocks

    def run(self, cases: Listing[Case], known: Listing[Listing[int]] = ()) -> list[list[int]]:
        """The answers; those that are `known` make drafts. AssertionError when blocks do not add up, RuntimeError when a sequence fails."""
        answers: list[list[int]] = [[] for _ in cases]
        drafters = (
            [_Rehearsed(len(case.prompt), answer) for case, answer in zip(cases, known, strict=True)] if known else [None] * len(cases)
        )
        for index, (case, drafter) in enumerate(zip(cases, drafters, strict=True)):
            self._batcher.add(case.sequence(index, drafter))
        while self._batcher.has_work:
            plan = self._batcher.schedule(0.0)
            self._runner.copy_blocks(plan.copies)
            outputs = self._runner.step(plan.slices)
            if errors := [output.error for output in outputs if output.error is not None]:
                raise RuntimeError(errors[0])
            events = self._batcher.postprocess(plan, outputs)
            self.num_accepted += events.num_accepted_tokens
            for sampled in events.sampled:
                answers[sampled.sequence_id].append(sampled.token_id)
            self._cache.check()
            self.num_steps += 1
        return answers


def check_independence(findings: Findings, runner: ModelRunner, text_ids: Listing[int]) -> None:
    """Batch mates, cut prompts, drafts, preemption, cached blocks and resumption change no token, and all blocks come back."""
    cases = [Case(tuple(text_ids[at : at + count]), _KINDS[index % len(_KINDS)]) for index, (at, count) in enumerate(_PROMPTS)]
    alone = [Bench(runner, 1, 512).run([case])[0] for case in cases]
    count = f"{len(cases)} answers of {_MAX_TOKENS} tokens, greedy and drawn"
    findings.add("determinism", alone == [Bench(runner, 1, 512).run([case])[0] for case in cases], f"{count}, each made twice")
    batch, chunks, tight = Bench(runner, len(cases), 512), Bench(runner, 3, 11), Bench(runner, len(cases), 64, _FEW_BLOCKS)
    drafts = Bench(runner, len(cases), 128, max_drafts=_MAX_DRAFTS if runner.info.can_verify_drafts else 0)
    findings.add("batch mates", batch.run(cases) == alone, f"{count}, all at once")
    again = batch.run(cases) == alone  # At once: the other pools write into the same memory.
    findings.add("cache hits", again and batch.num_cached > 0, f"{count}, {batch.num_cached} prompt tokens from cached blocks")
    findings.add("chunks", chunks.run(cases) == alone, f"{count}, at most 11 tokens a step, in {chunks.num_steps} steps")
    ahead = drafts.run(cases, alone) == alone and bool(drafts.num_accepted) == runner.info.can_verify_drafts
    detail = f"{drafts.num_accepted} right ones, in {drafts.num_steps} steps" if runner.info.can_verify_drafts else "this runner takes none"
    findings.add("drafts", ahead, f"{count}, {detail}")
    same = tight.run(cases) == alone
    findings.add("preemption", same and tight.num_preemptions > 0, f"{count}, {tight.num_preemptions} preemptions")
    cut = [Case(case.prompt, case.sampling, tuple(answer[: 1 + at])) for at, (case, answer) in enumerate(zip(cases, alone, strict=True))]
    rest = [answer[1 + at :] for at, answer in enumerate(alone)]
    findings.add("resumption", Bench(runner, 4, 64).run(cut) == rest, f"{count}, cut after 1 to {len(cases)} tokens")
    used = [bench.num_used_blocks for bench in (batch, chunks, drafts, tight)]
    steps = batch.num_steps + chunks.num_steps + drafts.num_steps + tight.num_steps
    findings.add("blocks", not any(used), f"free + cached + used = total after each of {steps} steps, {sum(used)} in use at the end")
