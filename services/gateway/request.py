"""What is to be generated, whichever surface it came in by: one validated, immutable value."""

import secrets
from dataclasses import dataclass

MAX_STOPS = 4
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
    """Temperature 0 is greedy; top_p in (0, 1]; seed is the key of the random stream."""

    temperature: float = 1.0
    top_p: float = 1.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """`max_output_tokens` None means up to the end of the context; stream and include_usage only concern REST."""

    model: str
    messages: tuple[Message, ...]
    sampling: SamplingParams
    stop: tuple[str, ...] = ()
    max_output_tokens: int | None = None
    stream: bool = False
    include_usage: bool = False


def fresh_seed() -> int:
    """A random 64-bit seed, for requests that name none."""
    return secrets.randbits(64) + SEED_MIN
