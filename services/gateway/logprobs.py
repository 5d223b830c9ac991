"""How likely the model found the tokens of an answer: natural logarithms of its own probabilities, before temperature and penalties."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One token, its bytes (which need not be whole characters) and the logarithm of its probability, at most 0."""

    token_id: int
    token: bytes
    logprob: float


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """One position: the token that stands there, and the likeliest ones, likeliest first."""

    chosen: TokenLogprob
    top: tuple[TokenLogprob, ...]
