"""Writes text completions in OpenAI's shapes: event-stream chunks and whole documents."""

from collections.abc import Sequence

from services.gateway.answer import Accepted, Ending, Piece
from services.gateway.completion_logprobs import CompletionLogprobs
from services.gateway.json_text import dump, encode_text, on_one_line
from services.gateway.openai_json import EventWriter, head, usage_object

_KIND = "text_completion"


class CompletionWriter(EventWriter):
    """Chunks of a text completion; an echoed prompt begins the first chunk of every choice."""

    def __init__(self, accepted: Accepted) -> None:
        super().__init__(accepted, _KIND)
        self._choices = [_Choice(accepted) for _ in range(accepted.request.num_choices)]

    def piece(self, piece: Piece) -> bytes:
        """A chunk of text with the log-probabilities of its tokens."""
        text, logprobs = self._choices[piece.index].take(piece)
        shown = "null" if logprobs is None else on_one_line(dump(logprobs))
        return self._chunk(f'{{"index":{piece.index},"text":{encode_text(text)},"logprobs":{shown},"finish_reason":null}}')

    def finish(self, finish_reasons: Sequence[str]) -> bytes:
        """The last chunk of every choice."""
        chunks = []
        for index, (choice, reason) in enumerate(zip(self._choices, finish_reasons, strict=True)):
            text, logprobs = choice.take(Piece(index, ""))
            chunks.append(self._chunk(dump({"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason})))
        return b"".join(chunks)


class _Choice:
    """What one choice says: the echoed prompt before its first piece, and log-probabilities when they were asked for."""

    def __init__(self, accepted: Accepted) -> None:
        self._echo = accepted.echo
        self._logprobs = CompletionLogprobs() if accepted.request.num_logprobs is not None else None

    def take(self, piece: Piece) -> tuple[str, dict[str, object] | None]:
        """Text and log-probabilities of the piece, and of the prompt if it is the first."""
        echo, self._echo = self._echo, None
        text = piece.text if echo is None else echo.text + piece.text
        if self._logprobs is None:
            return text, None
        first = None if echo is None else echo.first_token
        return text, self._logprobs.document(first, (*piece.prompt_logprobs, *piece.logprobs))


def completion_document(accepted: Accepted, pieces: Sequence[Piece], ending: Ending) -> bytes:
    """A whole text completion."""
    choices = []
    for piece, reason in zip(pieces, ending.finish_reasons, strict=True):
        text, logprobs = _Choice(accepted).take(piece)
        choices.append({"index": piece.index, "text": text, "logprobs": logprobs, "finish_reason": reason})
    return dump({**head(accepted, _KIND), "choices": choices, "usage": usage_object(ending.usage)}).encode()
