"""Writes text completions in OpenAI's shapes: event-stream chunks and whole documents."""

from services.gateway.answer import Accepted, Ending, Usage
from services.gateway.openai_json import dump, encode_text, fingerprint, usage_object


class CompletionWriter:
    """Chunks of one stream, each as one complete server-sent event in bytes."""

    def __init__(self, accepted: Accepted) -> None:
        self._head = "data: " + dump(_head(accepted))[:-1]
        # With include_usage every chunk but the last says usage null; without it no chunk says anything.
        self._tail = (',"usage":null' if accepted.request.include_usage else "") + "}\n\n"
        self._before_text = self._head + ',"choices":[{"index":0,"text":'
        self._after_text = ',"logprobs":null,"finish_reason":null}]' + self._tail

    def text(self, text: str) -> bytes:
        """A chunk of text."""
        return f"{self._before_text}{encode_text(text)}{self._after_text}".encode()

    def finish(self, finish_reason: str) -> bytes:
        """The last chunk of the choice."""
        return f'{self._before_text}"","logprobs":null,"finish_reason":"{finish_reason}"}}]{self._tail}'.encode()

    def usage(self, usage: Usage) -> bytes:
        """The chunk that tells what is billed: no choices in it."""
        return f'{self._head},"choices":[],"usage":{dump(usage_object(usage))}}}\n\n'.encode()


def completion_document(accepted: Accepted, text: str, ending: Ending) -> bytes:
    """A whole text completion."""
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": ending.finish_reasons[0]}
    return dump({**_head(accepted), "choices": [choice], "usage": usage_object(ending.usage)}).encode()


def _head(accepted: Accepted) -> dict[str, object]:
    return {
        "id": accepted.completion_id,
        "object": "text_completion",
        "created": accepted.created_unix_s,
        "model": accepted.model,
        "system_fingerprint": fingerprint(accepted),
    }
