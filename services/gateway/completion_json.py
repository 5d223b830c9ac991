"""Writes text completions in OpenAI's shapes: event-stream chunks and whole documents."""

from collections.abc import Sequence

from services.gateway.answer import Accepted, Ending, Piece
from services.gateway.completion_logprobs import CompletionLogprobs, TokenNames
from services.gateway.json_text import dump, encode_text
from services.gateway.openai_json import EventWriter, head, usage_object

_KIND = "text_completion"


class CompletionWriter(EventWriter):
    """Chunks of a text completion; an echoed prompt begins the first chunk of every choice."""

    def __init__(self, accepted: Accepted) -> None:
        super().__init__(accepted, _KIND)
        self._choices = _choices(accepted)

    def piece(self, piece: Piece) -> bytes:
        """A chunk of text with the log-probabilities of its tokens."""
        choice = self._choices[piece.index]
        choice.add(piece)
        return self._chunk(choice.take(None))

    def finish(self, finish_reasons: Sequence[str]) -> bytes:
        """The last chunk of every choice."""
        return b"".join(self._chunk(choice.take(reason)) for choice, reason in zip(self._choices, finish_reasons, strict=True))


class CompletionDocument:
    """A whole text completion. Log-probabilities are encoded as their pieces are added: at the end they would stop all others at once."""

    def __init__(self, accepted: Accepted) -> None:
        self._accepted = accepted
        self._choices = _choices(accepted)

    def add(self, piece: Piece) -> None:
        """More of one choice."""
        self._choices[piece.index].add(piece)

    def finish(self, ending: Ending) -> bytes:
        """The document."""
        choices = ",".join(choice.take(reason) for choice, reason in zip(self._choices, ending.finish_reasons, strict=True))
        begun, usage = dump(head(self._accepted, _KIND))[:-1], dump(usage_object(ending.usage))
        return f'{begun},"choices":[{choices}],"usage":{usage}}}'.encode()


class _Choice:
    """What one choice says and was not taken yet; an echoed prompt is the first of it."""

    def __init__(self, index: int, accepted: Accepted, names: TokenNames) -> None:
        self._index = index
        self._texts: list[str] = []
        self._logprobs = CompletionLogprobs(names) if accepted.request.num_logprobs is not None else None
        if accepted.echo is not None:
            self._texts.append(accepted.echo.text)
            if self._logprobs is not None:
                self._logprobs.add_first(accepted.echo.first_token)

    def add(self, piece: Piece) -> None:
        self._texts.append(piece.text)
        if self._logprobs is not None:
            self._logprobs.add(piece.prompt_logprobs)
            self._logprobs.add(piece.logprobs)

    def take(self, finish_reason: str | None) -> str:
        """The choice as a JSON object."""
        text = encode_text("".join(self._texts))
        self._texts.clear()
        logprobs = "null" if self._logprobs is None else self._logprobs.take()
        reason = "null" if finish_reason is None else encode_text(finish_reason)
        return f'{{"index":{self._index},"text":{text},"logprobs":{logprobs},"finish_reason":{reason}}}'


def _choices(accepted: Accepted) -> list[_Choice]:
    names = TokenNames()
    return [_Choice(index, accepted, names) for index in range(accepted.request.num_choices)]
