"""What is to be generated, whichever surface it came in by: one validated, immutable value."""

import secrets
from dataclasses import dataclass

MAX_STOPS = 4
MAX_STOP_TOKENS = 16
MAX_CHOICES = 16
MAX_TOP_LOGPROBS = 20
MAX_LOGIT_BIASES = 1024
MAX_LOGPROBS = 8192 * (1 + MAX_TOP_LOGPROBS)
"""Log-probabilities of one request, all choices and likeliest tokens together: as JSON about 15 MB, and the edge passes 16 MiB."""
MAX_STOP_CHARS = 512
MAX_MESSAGES = 4096
SEED_MIN, SEED_MAX = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class Message:
    """One turn: `role` is system, user or assistant."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Temperature 0 is greedy; top_p in (0, 1]; seed is the key of the random stream. See AttemptSampling in engine.proto for the rest."""

    temperature: float = 1.0
    top_p: float = 1.0
    seed: int = 0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class FieldNames:
    """What the client calls the fields that it filled in, for refusals that come after its request was read; those of a chat by default."""

    input: str = "messages"
    limit: str = "max_completion_tokens"
    logit_bias: str = "logit_bias"
    logprobs: str = "logprobs"


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """What is asked for: an answer to `messages`, or text that follows `prompt`; exactly one of both is given.

    `max_output_tokens` None means up to the end of the context. `num_logprobs` None asks for no log-probabilities, else for those of every
    output token and of so many likeliest ones; `num_prompt_logprobs` likewise for the prompt's tokens from the second on. stream,
    include_usage and echo (the prompt is part of the text) only concern REST.
    """

    model: str
    messages: tuple[Message, ...]
    sampling: SamplingParams
    stop: tuple[str, ...] = ()
    max_output_tokens: int | None = None
    stream: bool = False
    include_usage: bool = False
    prompt: str | tuple[int, ...] | None = None
    num_choices: int = 1
    min_output_tokens: int = 0
    stop_token_ids: tuple[int, ...] = ()
    include_stop: bool = False
    ignore_eos: bool = False
    num_logprobs: int | None = None
    num_prompt_logprobs: int | None = None
    echo: bool = False
    names: FieldNames = FieldNames()

    def num_most_logprobs(self, num_prompt_tokens: int, max_output_tokens: int) -> int:
        """The most log-probabilities that the answer can hold."""
        of_output = 0 if self.num_logprobs is None else (1 + self.num_logprobs) * max_output_tokens
        of_prompt = 0 if self.num_prompt_logprobs is None else (1 + self.num_prompt_logprobs) * num_prompt_tokens
        return self.num_choices * (of_output + of_prompt)


def fresh_seed() -> int:
    """A random 64-bit seed, for requests that name none."""
    return secrets.randbits(64) + SEED_MIN
