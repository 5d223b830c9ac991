"""Writes log-probabilities in the shape of OpenAI's text completions: four parallel arrays; a token's name is encoded once per answer."""

import codecs
from collections.abc import Iterable

from services.gateway.json_text import encode_text
from services.gateway.logprobs import TokenLogprobs
from services.gateway.logprobs_json import logprob_number

_NEW_DECODER = codecs.getincrementaldecoder("utf-8")


class TokenNames(dict[bytes, str]):
    """The tokens of one answer as JSON strings, those of all choices together; a token that is not there yet comes when it is asked for."""

    def __missing__(self, token: bytes) -> str:
        """The token's text; as the API does it, bytes that are no text show as escapes, so that no two tokens become the same key."""
        known = self[token] = encode_text(_name(token))
        return known


class CompletionLogprobs:
    """Those of one choice, written as they are added; `text_offset` counts the characters of the choice's text before a token."""

    def __init__(self, names: TokenNames) -> None:
        self._names = names
        self._decoder = _NEW_DECODER(errors="replace")
        self._offset = 0
        self._tokens: list[str] = []
        self._numbers: list[str] = []
        self._tops: list[str] = []
        self._offsets: list[str] = []

    def add_first(self, token: bytes) -> None:
        """The first token of an echoed prompt: nothing stands before it that could make it likely."""
        self._append(token, "null", "null")

    def add(self, positions: Iterable[TokenLogprobs]) -> None:
        """Positions that follow."""
        for position in positions:
            self._append(position.chosen.token, repr(logprob_number(position.chosen)), self._top(position))

    def take(self) -> str:
        """The object of what was added since the last time."""
        parts = (self._tokens, self._numbers, self._tops, self._offsets)
        tokens, numbers, tops, offsets = map(",".join, parts)
        for part in parts:
            part.clear()
        return f'{{"tokens":[{tokens}],"token_logprobs":[{numbers}],"top_logprobs":[{tops}],"text_offset":[{offsets}]}}'

    def _append(self, token: bytes, number: str, top: str) -> None:
        self._tokens.append(self._names[token])
        self._numbers.append(number)
        self._tops.append(top)
        self._offsets.append(str(self._offset))
        self._offset += len(self._decoder.decode(token))

    def _top(self, position: TokenLogprobs) -> str:
        """The likeliest tokens, and the chosen one even if it is none of them."""
        names = self._names
        numbers = {names[entry.token]: logprob_number(entry) for entry in (*position.top, position.chosen)}
        return "{" + ",".join([f"{name}:{number!r}" for name, number in numbers.items()]) + "}"


def _name(token: bytes) -> str:
    try:
        return token.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token)
