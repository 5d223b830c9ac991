"""A runner without numbers: the next token is a pure function of the whole context, so that the rest of the mesh can be tested."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from services.engine.runner import Drawn, ModelInfo, RunnerSettings, SequenceSlice, StepOutput, TokenLogprobs
from services.engine.token_bytes import TokenBytes
from services.kit.model_store import TOKENIZER, ModelStore

_MASK = (1 << 64) - 1
_LN_2 = math.log(2)
_START = 0x9E3779B97F4A7C15


class SimRunner:
    """Keeps, for every position, a digest of the context up to it in the slot that a real KV cache would use.

    A wrong block table, a block given away too early or a position computed twice therefore changes the output, as in a real model.
    Tokens are drawn from those that are whole UTF-8 text. `eos_every` n makes about every n-th token the end of sequence; 0 never does.
    Forbidden tokens never come, nor those with a bias of -100; one with a bias of 100 always comes. Log-probabilities are made up, but
    belong to a distribution: the token's own is ln(1/2), the others halve.
    """

    def __init__(
        self,
        info: ModelInfo,
        token_ids: Sequence[int],
        *,
        step_s: float = 0.0,
        eos_every: int = 0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.info = info
        self._token_ids = tuple(token_ids)
        self._step_s = step_s
        self._eos_every = eos_every
        self._sleep = sleep
        self._digests = [0] * (info.num_blocks * info.block_size)

    @classmethod
    def load(cls, settings: RunnerSettings) -> "SimRunner":
        """A runner with limits and vocabulary of a model of the store; the weights are not read. Raises the store's errors."""
        version = ModelStore(Path(settings.home)).get(settings.model, settings.version)
        vocabulary = TokenBytes.from_json(version.read(TOKENIZER))
        info = ModelInfo(
            name=version.name,
            version=version.version,
            vocab_size=version.vocab_size,
            max_context_tokens=version.max_context_tokens,
            eos_token_ids=version.eos_token_ids,
            block_size=settings.block_size,
            num_blocks=settings.num_blocks,
            dtype="none",
            quality="sim: tokens are made up",
            can_verify_drafts=True,
        )
        token_ids = [token_id for token_id in range(len(vocabulary)) if _is_text(vocabulary[token_id])]
        return cls(info, token_ids, step_s=settings.sim_step_ms / 1000, eos_every=settings.sim_eos_every)

    def step(self, slices: Sequence[SequenceSlice]) -> list[StepOutput]:
        """See ModelRunner."""
        self._sleep(self._step_s)
        return [self._compute(part) for part in slices]

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """See ModelRunner."""
        size = self.info.block_size
        for source, target in pairs:
            self._digests[target * size : (target + 1) * size] = self._digests[source * size : (source + 1) * size]

    def warm_up(self) -> None:
        """See ModelRunner."""
        self._digests = [_START] * len(self._digests)

    def close(self) -> None:
        """See ModelRunner."""

    def _compute(self, part: SequenceSlice) -> StepOutput:
        digest = _START if part.start == 0 else self._digests[self._slot(part, part.start - 1)]
        output = StepOutput(part.sequence_id, None)
        scored = []
        drawn: list[Drawn] = []
        last = part.start + len(part.token_ids) - 1
        for position, token_id in enumerate(part.token_ids, part.start):
            digest = _mix(digest, token_id)
            self._digests[self._slot(part, position)] = digest
            if part.num_prompt_logprobs is not None and position + 1 < part.num_prompt:
                scored.append(self._logprobs(digest, part.context[position + 1], part.num_prompt_logprobs))
            index = position - (last - part.num_drafts)
            if part.samples and index == len(drawn) and (index == 0 or drawn[-1].token_id == token_id):
                drawn.append(self._draw(replace(part, output_position=part.output_position + index), digest))
        output.prompt_logprobs = scored
        if drawn:
            output.token_id, output.logprobs, output.further = drawn[0].token_id, drawn[0].logprobs, drawn[1:]
        return output

    def _draw(self, part: SequenceSlice, digest: int) -> Drawn:
        token_id = self._sample(part, digest)
        return Drawn(token_id, None if part.num_logprobs is None else self._logprobs(digest, token_id, part.num_logprobs))

    def _slot(self, part: SequenceSlice, position: int) -> int:
        block, offset = divmod(position, self.info.block_size)
        return part.block_table[block] * self.info.block_size + offset

    def _sample(self, part: SequenceSlice, digest: int) -> int:
        if part.sampling.temperature > 0:
            digest = _mix(_mix(_mix(digest, part.sampling.seed & _MASK), part.choice), part.output_position)
        biases = part.sampling.logit_bias
        banned = part.forbidden.union(token for token, bias in biases if bias <= -100)
        if wanted := [token for token, bias in biases if bias >= 100 and token not in banned]:
            return wanted[(digest >> 20) % len(wanted)]
        end = min(self.info.eos_token_ids)
        if self._eos_every and digest % self._eos_every == 0 and end not in banned:
            return end
        return next((token for token in self._tokens(digest) if token not in banned), end)

    def _tokens(self, digest: int) -> Iterator[int]:
        """All tokens of text, each once, beginning where the digest says."""
        begin, size = digest >> 20, len(self._token_ids)
        return (self._token_ids[(begin + step) % size] for step in range(size))

    def _logprobs(self, digest: int, token_id: int, num_top: int) -> TokenLogprobs:
        others = (token for token in self._tokens(digest) if token != token_id)
        top = [token_id, *islice(others, max(0, num_top - 1))][:num_top]
        return TokenLogprobs(token_id, -_LN_2, tuple((token, -_LN_2 * rank) for rank, token in enumerate(top, 1)))


def _mix(digest: int, value: int) -> int:
    """One round of SplitMix64 (Steele, Lea and Flood 2014) over both numbers."""
    mixed = (digest + (value + 1) * _START) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return mixed ^ (mixed >> 31)


def _is_text(token: bytes) -> bool:
    try:
        return bool(token.decode())
    except UnicodeDecodeError:
        return False
