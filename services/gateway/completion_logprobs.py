"""Writes log-probabilities in the shape of OpenAI's text completions: four parallel arrays."""

import codecs
from collections.abc import Sequence

from services.gateway.logprobs import TokenLogprob, TokenLogprobs
from services.gateway.logprobs_json import logprob_number

_NEW_DECODER = codecs.getincrementaldecoder("utf-8")


class CompletionLogprobs:
    """Those of one choice, piece by piece: `text_offset` counts the characters of the choice's text before a token."""

    def __init__(self) -> None:
        self._decoder = _NEW_DECODER(errors="replace")
        self._offset = 0

    def document(self, first: bytes | None, positions: Sequence[TokenLogprobs]) -> dict[str, object]:
        """The object of a piece. `first` is the first token of an echoed prompt, before which nothing stands that could make it likely."""
        before: list[bytes] = [] if first is None else [first]
        unknown: list[None] = [None] * len(before)
        tokens = before + [position.chosen.token for position in positions]
        return {
            "tokens": [_name(token) for token in tokens],
            "token_logprobs": [*unknown, *(logprob_number(position.chosen) for position in positions)],
            "top_logprobs": [*unknown, *map(_top, positions)],
            "text_offset": [self._pass(token) for token in tokens],
        }

    def _pass(self, token: bytes) -> int:
        offset = self._offset
        self._offset += len(self._decoder.decode(token))
        return offset


def _top(position: TokenLogprobs) -> dict[str, float]:
    """The likeliest tokens, and the chosen one even if it is none of them."""
    entries: list[TokenLogprob] = [*position.top, position.chosen]
    return {_name(entry.token): logprob_number(entry) for entry in entries}


def _name(token: bytes) -> str:
    """The token's text; as the API does it, bytes that are no text show as escapes, so that no two tokens become the same key."""
    try:
        return token.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token)
