"""Writes answers in OpenAI's shapes: event-stream chunks, whole completions, models; per chunk only the text is encoded."""

import json
from collections.abc import Mapping, Sequence

from services.gateway.answer import Accepted, Ending, Piece, Usage
from services.gateway.logprobs_json import chat_logprobs
from services.gateway.models import ServedModel

DONE = b"data: [DONE]\n\n"

_encode = json.JSONEncoder(ensure_ascii=False).encode
# Valid inside JSON, but some clients' line splitters take them for the end of an event's line.
_LINE_BREAKS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}


class ChunkWriter:
    """Chunks of one stream, each as one complete server-sent event in bytes."""

    def __init__(self, accepted: Accepted) -> None:
        head = {
            "id": accepted.completion_id,
            "object": "chat.completion.chunk",
            "created": accepted.created_unix_s,
            "model": accepted.model,
            "system_fingerprint": fingerprint(accepted),
        }
        include_usage = accepted.request.include_usage
        self._head = "data: " + dump(head)[:-1]
        # With include_usage every chunk but the last says usage null; without it no chunk says anything.
        self._tail = (',"usage":null' if include_usage else "") + "}\n\n"
        self._num_choices = accepted.request.num_choices

    def roles(self) -> bytes:
        """The first chunk of every choice: who speaks."""
        delta = {"role": "assistant", "content": "", "refusal": None}
        return b"".join(self._choice(index, delta, None) for index in range(self._num_choices))

    def piece(self, piece: Piece) -> bytes:
        """A chunk of text with the log-probabilities of its tokens."""
        logprobs = on_one_line(dump(chat_logprobs(piece.logprobs))) if piece.logprobs else "null"
        choice = f'{{"index":{piece.index},"delta":{{"content":{encode_text(piece.text)}}},"logprobs":{logprobs},"finish_reason":null}}'
        return f'{self._head},"choices":[{choice}]{self._tail}'.encode()

    def finish(self, finish_reasons: Sequence[str]) -> bytes:
        """The last chunk of every choice."""
        return b"".join(self._choice(index, {}, reason) for index, reason in enumerate(finish_reasons))

    def usage(self, usage: Usage) -> bytes:
        """The chunk that tells what is billed: no choices in it."""
        return f'{self._head},"choices":[],"usage":{dump(usage_object(usage))}}}\n\n'.encode()

    def _choice(self, index: int, delta: Mapping[str, object], finish_reason: str | None) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return f'{self._head},"choices":[{dump(choice)}]{self._tail}'.encode()


def completion(accepted: Accepted, choices: Sequence[Piece], ending: Ending) -> bytes:
    """A whole chat completion."""
    return _bytes(
        {
            "id": accepted.completion_id,
            "object": "chat.completion",
            "created": accepted.created_unix_s,
            "model": accepted.model,
            "choices": [_choice(choice, reason) for choice, reason in zip(choices, ending.finish_reasons, strict=True)],
            "usage": usage_object(ending.usage),
            "system_fingerprint": fingerprint(accepted),
        }
    )


def _choice(choice: Piece, finish_reason: str) -> dict[str, object]:
    return {
        "index": choice.index,
        "message": {"role": "assistant", "content": choice.text, "refusal": None},
        "logprobs": chat_logprobs(choice.logprobs) if choice.logprobs else None,
        "finish_reason": finish_reason,
    }


def error_event(error: Mapping[str, object]) -> bytes:
    """The event that ends a stream which cannot be completed; no [DONE] follows it."""
    return f"data: {json.dumps(error, separators=(',', ':'))}\n\n".encode()


def usage_object(usage: Usage) -> dict[str, object]:
    """Token counts as OpenAI names them."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_prompt_tokens, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": 0,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def model_object(model: ServedModel) -> dict[str, object]:
    """A model as OpenAI lists it."""
    return {"id": model.name, "object": "model", "created": model.created_unix_s, "owned_by": "inferway"}


def model_document(model: ServedModel) -> bytes:
    """The answer of GET /v1/models/{id}."""
    return _bytes(model_object(model))


def model_list(models: Sequence[ServedModel]) -> bytes:
    """The answer of GET /v1/models."""
    return _bytes({"object": "list", "data": [model_object(model) for model in models]})


def fingerprint(accepted: Accepted) -> str:
    """Changes exactly when the weights do."""
    return f"fp_{accepted.model_version}"


def encode_text(text: str) -> str:
    """The text as a JSON string that no line splitter takes apart."""
    return on_one_line(_encode(text))


def on_one_line(document: str) -> str:
    """JSON that no line splitter takes apart."""
    return document if document.isascii() else document.translate(_LINE_BREAKS)


def dump(value: object) -> str:
    """Compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _bytes(value: object) -> bytes:
    return dump(value).encode()
