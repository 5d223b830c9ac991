"""Writes log-probabilities in the shape of OpenAI's chat answers."""

from collections.abc import Sequence

from services.gateway.logprobs import TokenLogprob, TokenLogprobs

_LEAST = -9999.0
"""What the API says instead of minus infinity, which JSON does not have."""


def chat_logprobs(positions: Sequence[TokenLogprobs]) -> dict[str, object]:
    """The object of a choice, or of one chunk of it."""
    content = [{**_token(entry.chosen), "top_logprobs": [_token(token) for token in entry.top]} for entry in positions]
    return {"content": content, "refusal": None}


def token_text(token: TokenLogprob) -> str:
    """The token as text; bytes that are no whole character show as U+FFFD."""
    return token.token.decode(errors="replace")


def logprob_number(token: TokenLogprob) -> float:
    """A number that JSON can hold."""
    return max(token.logprob, _LEAST)


def _token(token: TokenLogprob) -> dict[str, object]:
    return {"token": token_text(token), "logprob": logprob_number(token), "bytes": list(token.token)}
