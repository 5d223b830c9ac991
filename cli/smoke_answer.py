"""What one client of the smoke test was told, whatever it spoke."""

from dataclasses import dataclass
from enum import StrEnum


class Surface(StrEnum):
    """How a request was made; the names are those of the ledger."""

    REST_STREAM = "rest-stream"
    REST = "rest"
    GRPC = "grpc"


@dataclass(frozen=True)
class Usage:
    """Tokens that the client was told it pays for."""

    prompt_tokens: int
    completion_tokens: int
    cached_prompt_tokens: int


@dataclass(frozen=True)
class Answer:
    """A request that ended well. `ttft_s` is None where the answer came in one piece."""

    surface: Surface
    completion_id: str
    model: str
    finish_reason: str
    usage: Usage
    ttft_s: float | None


@dataclass(frozen=True)
class Failure:
    """A request that did not."""

    surface: Surface
    reason: str
