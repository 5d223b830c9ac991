"""The seam between the step loop and whatever computes a step: every numeric back end is a `ModelRunner`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token of a sequence is chosen from its logits.

    Logits are changed first, in this order: `logit_bias` (token id, bias) is added; `repetition_penalty` divides positive and multiplies
    negative logits of tokens of prompt and output (1 is off); `frequency_penalty` is taken off per occurrence in the output and
    `presence_penalty` once (0 is off). `temperature` 0 then means greedy (argmax; the lowest id wins a tie) and ignores what follows.
    `top_k` (0 keeps every token) and `min_p` (drops tokens less likely than this share of the likeliest one; 0 drops none) come next, then
    `top_p` (in (0, 1]; 1 keeps every token) of the mass that they left. `seed` is a 64-bit key, always set by the caller: equal (seed,
    choice, output position) and equal logits give the equal token, on any replica and beside any batch mates.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()

    @property
    def is_penalised(self) -> bool:
        """Whether logits depend on the tokens before."""
        return self.repetition_penalty != 1 or self.frequency_penalty != 0 or self.presence_penalty != 0


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a loaded model is and how much of it fits; constant for the life of a runner."""

    name: str
    version: str
    vocab_size: int
    max_context_tokens: int
    """Most positions of one sequence, prompt and output together."""
    eos_token_ids: frozenset[int]
    block_size: int
    """Tokens per KV block."""
    num_blocks: int
    """KV blocks in the pool; ids are 0 .. num_blocks - 1, all of them free for use."""
    dtype: str
    """Numeric type of weights and KV cache, for example `float32`."""
    quality: str
    """Which numeric path serves, in words an operator can read; a cheaper path is stated here, never silent."""
    can_verify_drafts: bool = False
    """Whether a token gets the same logits, bit for bit, behind other tokens of its slice as alone, so that drafts change no answer."""


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """How likely a token and the likeliest ones were: natural logarithms, of the raw logits before bias, penalties and temperature."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()
    """Token ids and their log-probabilities, likeliest first, equals by id."""


@dataclass(slots=True)
class SequenceSlice:
    """The tokens of one sequence that one step computes.

    `token_ids` (never empty) stand at positions `start` .. `start + len(token_ids) - 1`; everything before `start` is already in the KV
    cache. `block_table` lists the blocks of the sequence in order and covers at least the last position of the slice; blocks may be
    shared with other sequences as long as no slice of the step writes into a shared one. With `samples` the logits of the last token are
    sampled, and `output_position` is the index of the sampled token in the output (0 = first generated token; a resumed sequence goes on
    counting where it stopped). `choice` is the index among the n answers of one request.

    `context` holds all tokens that the sequence has so far, also those behind the slice, of which the first `num_prompt` are the prompt. It
    is a view that is valid during the step, read for penalties and prompt log-probabilities only; with `samples` it ends where the slice
    ends. `forbidden` tokens must not be drawn. `num_logprobs` asks for the log-probabilities of the sampled token and so many likeliest
    ones; `num_prompt_logprobs` for those of every prompt token that follows a token of this slice.

    The last `num_drafts` tokens are drafts: guesses of the tokens to come, not part of `context`. With them the logits of the last
    1 + `num_drafts` tokens are sampled in order, until a token is drawn that is not the draft at its place or there is no draft left. A
    slice with `forbidden` tokens or penalties, which depend on the tokens before, has none.
    """

    sequence_id: int
    token_ids: list[int]
    start: int
    block_table: list[int]
    sampling: SamplingParams
    samples: bool
    choice: int = 0
    output_position: int = 0
    context: Sequence[int] = ()
    num_prompt: int = 0
    forbidden: frozenset[int] = frozenset()
    num_logprobs: int | None = None
    num_prompt_logprobs: int | None = None
    num_drafts: int = 0


@dataclass(frozen=True, slots=True)
class Drawn:
    """One sampled token, with its log-probabilities where the slice asked for them."""

    token_id: int
    logprobs: TokenLogprobs | None = None


@dataclass(slots=True)
class StepOutput:
    """What one slice of a step gave: tokens, nothing (`samples` was False), or an error that ends this sequence only."""

    sequence_id: int
    token_id: int | None
    error: str | None = None
    """A sentence without prompt or answer text, for example that the logits were not finite."""
    logprobs: TokenLogprobs | None = None
    """Of `token_id`, when the slice asked for them."""
    prompt_logprobs: Sequence[TokenLogprobs] = ()
    """In order of position, when the slice asked for them."""
    further: list[Drawn] = field(default_factory=list)
    """The tokens after `token_id`: one for every draft that was right, the last of them drawn behind it."""

    @property
    def drawn(self) -> list[Drawn]:
        """All sampled tokens in order."""
        return [] if self.token_id is None else [Drawn(self.token_id, self.logprobs), *self.further]


def slice_fault(part: SequenceSlice, info: ModelInfo) -> str | None:
    """Why a runner cannot compute this slice, found before it can harm the step; None when it can."""
    end = part.start + len(part.token_ids)
    if not part.token_ids or min(part.token_ids) < 0 or max(part.token_ids) >= info.vocab_size:
        return "a token id is outside the vocabulary"
    if end > info.max_context_tokens:
        return "the sequence is longer than the model's context"
    used = part.block_table[: -(-end // info.block_size)]
    if len(used) * info.block_size < end or min(used) < 0 or max(used) >= info.num_blocks:
        return "the block table does not cover the sequence"
    return None


class ModelRunner(Protocol):
    """Owns weights and KV pool; called by the step thread only, never by two threads at once."""

    info: ModelInfo

    def step(self, slices: Sequence[SequenceSlice]) -> list[StepOutput]:
        """Compute all slices (prefill chunks and decodes mixed) and return one output per slice, in the order of `slices`.

        A sequence id occurs at most once. Raises only for a fault of the runner itself (out of memory, broken device); a fault of one
        sequence is the `error` of its output. A step that raised may have written any position that its slices cover, and no other: the
        same slices, all or some of them, in any order, may be computed again and give what they would have given.
        """
        ...

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Make the KV contents of each pair's second block those of its first, before the next step. No block is written twice."""
        ...

    def warm_up(self) -> None:
        """Run the shapes that serving meets, so that the first request pays no one-time cost. The KV pool is dirty afterwards."""
        ...

    def close(self) -> None:
        """Give back weights and KV pool. Safe to call twice."""
        ...


@dataclass(frozen=True, slots=True)
class RunnerSettings:
    """All that a runner is told at start; a field that a runner does not need is ignored by it."""

    model: str
    """Model name in the store."""
    version: str = ""
    """Version in the store; empty takes the newest."""
    home: Path = Path(".inferway")
    """INFERWAY_HOME: the store is `<home>/models`."""
    kernels: Path | None = None
    """Folder with ready-made libraries of the native kernels, only read, and before `<home>/kernels`."""
    device: str = "cpu"
    """`cpu`, `cuda` or `cuda:<index>`."""
    dtype: str = ""
    """`float32` or `bfloat16`; empty takes what the model's card says, else `float32`."""
    kv_dtype: str = ""
    """`bfloat16` or `int8` for keys and values; empty takes the card's, else what suits the runner."""
    threads: int = 1
    """Compute threads on a CPU."""
    block_size: int = 16
    """Tokens per KV block."""
    num_blocks: int = 1024
    """KV blocks in the pool."""
    sim_step_ms: float = 2.0
    """Length of a step of the sim runner."""
    sim_eos_every: int = 0
    """The sim runner ends a sequence at about every n-th token; 0 never does."""
