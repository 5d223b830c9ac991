"""Drives a runner as the step loop does, in the least code: a shuffled block list, a token budget, decodes before prefill chunks."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from services.engine.runner import ModelRunner, SamplingParams, SequenceSlice


@dataclass(slots=True)
class _Running:
    prompt: list[int]
    sampling: SamplingParams
    table: list[int] = field(default_factory=list)
    computed: int = 0
    output: list[int] = field(default_factory=list)

    def tokens(self) -> list[int]:
        return self.prompt + self.output


class StepDriver:
    """Computes answers token by token; blocks are handed out in random order so that tables are never contiguous by luck."""

    def __init__(self, runner: ModelRunner, budget: int, seed: int = 0) -> None:
        self._runner = runner
        self._budget = budget
        self._free = list(range(runner.info.num_blocks))
        Random(seed).shuffle(self._free)

    def generate(self, prompts: Sequence[list[int]], max_tokens: int, sampling: Sequence[SamplingParams] | None = None) -> list[list[int]]:
        """The answers to `prompts`, all running at once; an answer ends with an end-of-sequence token or after `max_tokens`."""
        params = sampling or [SamplingParams(temperature=0)] * len(prompts)
        running = [_Running(prompt, each) for prompt, each in zip(prompts, params, strict=True)]
        return self._run(running, max_tokens)

    def resume(self, prompt: list[int], delivered: list[int], max_tokens: int, sampling: SamplingParams) -> list[int]:
        """The whole answer when its first tokens were made elsewhere; beside a second sequence that only keeps the batch company."""
        mate = _Running(prompt[::-1], SamplingParams(temperature=1.0, seed=3))
        return self._run([mate, _Running(prompt, sampling, output=list(delivered))], max_tokens)[1]

    def _run(self, running: list[_Running], max_tokens: int) -> list[list[int]]:
        while active := [at for at, item in enumerate(running) if not self._done(item, max_tokens)]:
            self._step([(at, running[at]) for at in active])
        for item in running:
            self._free += item.table
        return [item.output for item in running]

    def _done(self, item: _Running, max_tokens: int) -> bool:
        return len(item.output) == max_tokens or (bool(item.output) and item.output[-1] in self._runner.info.eos_token_ids)

    def _step(self, active: list[tuple[int, _Running]]) -> None:
        budget, slices = self._budget, []
        for at, item in sorted(active, key=lambda entry: not entry[1].output):
            count = min(budget, len(item.tokens()) - item.computed)
            if count:
                budget -= count
                slices.append(self._slice(at, item, count))
        by_id = dict(active)
        for output in self._runner.step(slices):
            assert output.error is None
            if output.token_id is not None:
                by_id[output.sequence_id].output.append(output.token_id)

    def _slice(self, at: int, item: _Running, count: int) -> SequenceSlice:
        start, end = item.computed, item.computed + count
        while len(item.table) * self._runner.info.block_size < end:
            item.table.append(self._free.pop())
        item.computed = end
        tokens = item.tokens()
        return SequenceSlice(
            at, tokens[start:end], start, item.table, item.sampling, samples=end == len(tokens), output_position=len(item.output)
        )
