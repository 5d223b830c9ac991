"""Writes log-probabilities in the shape of OpenAI's chat answers; what a token looks like is encoded once per answer."""

from collections.abc import Iterable

from services.gateway.json_text import encode_text
from services.gateway.logprobs import TokenLogprob, TokenLogprobs

_LEAST = -9999.0
"""What the API says instead of minus infinity, which JSON does not have."""


class ChatLogprobs:
    """The entries of one answer. With 20 likeliest tokens a position is more than a kilobyte of JSON, so there is no detour by objects."""

    def __init__(self) -> None:
        self._known: dict[int, str] = {}

    def entries(self, positions: Iterable[TokenLogprobs]) -> str:
        """The positions as elements of a JSON array, without its brackets."""
        return ",".join(map(self._position, positions))

    def _position(self, position: TokenLogprobs) -> str:
        top = "},".join(map(self._token, position.top))
        return f'{self._token(position.chosen)},"top_logprobs":[{top}{"}" if top else ""}]}}'

    def _token(self, token: TokenLogprob) -> str:
        """An object that is still open."""
        known = self._known.get(token.token_id)
        if known is None:
            text, values = encode_text(token.token.decode(errors="replace")), ",".join(map(str, token.token))
            known = self._known[token.token_id] = f'{{"token":{text},"bytes":[{values}],"logprob":'
        return f"{known}{logprob_number(token)!r}"


def logprobs_object(entries: str) -> str:
    """The object of a choice, or of one chunk of it."""
    return f'{{"content":[{entries}],"refusal":null}}'


def logprob_number(token: TokenLogprob) -> float:
    """A number that JSON can hold."""
    return token.logprob if token.logprob > _LEAST else _LEAST
