"""Writes answers in OpenAI's shapes: event-stream chunks, whole completions, models; per chunk only the text is encoded."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from services.gateway.answer import Accepted, Ending, Piece, Usage
from services.gateway.json_text import dump, encode_text
from services.gateway.logprobs_json import ChatLogprobs, logprobs_object
from services.gateway.models import ServedModel

DONE = b"data: [DONE]\n\n"


class EventWriter(ABC):
    """What chunks of one stream have in common, whatever a choice looks like; each is one complete server-sent event in bytes."""

    def __init__(self, accepted: Accepted, kind: str) -> None:
        self._head = "data: " + dump(head(accepted, kind))[:-1]
        # With include_usage every chunk but the last says usage null; without it no chunk says anything.
        self._tail = (',"usage":null' if accepted.request.include_usage else "") + "}\n\n"

    @abstractmethod
    def piece(self, piece: Piece) -> bytes:
        """A chunk of text with the log-probabilities of its tokens."""

    @abstractmethod
    def finish(self, finish_reasons: Sequence[str]) -> bytes:
        """The last chunk of every choice."""

    def usage(self, usage: Usage) -> bytes:
        """The chunk that tells what is billed: no choices in it."""
        return f'{self._head},"choices":[],"usage":{dump(usage_object(usage))}}}\n\n'.encode()

    def _chunk(self, choice: str) -> bytes:
        return f'{self._head},"choices":[{choice}]{self._tail}'.encode()


class ChunkWriter(EventWriter):
    """Chunks of a chat completion."""

    def __init__(self, accepted: Accepted) -> None:
        super().__init__(accepted, "chat.completion.chunk")
        self._num_choices = accepted.request.num_choices
        self._logprobs = ChatLogprobs()

    def roles(self) -> bytes:
        """The first chunk of every choice: who speaks."""
        delta = {"role": "assistant", "content": "", "refusal": None}
        return b"".join(self._choice(index, delta, None) for index in range(self._num_choices))

    def piece(self, piece: Piece) -> bytes:
        """A chunk of text with the log-probabilities of its tokens."""
        logprobs = logprobs_object(self._logprobs.entries(piece.logprobs)) if piece.logprobs else "null"
        return self._chunk(
            f'{{"index":{piece.index},"delta":{{"content":{encode_text(piece.text)}}},"logprobs":{logprobs},"finish_reason":null}}'
        )

    def finish(self, finish_reasons: Sequence[str]) -> bytes:
        """The last chunk of every choice."""
        return b"".join(self._choice(index, {}, reason) for index, reason in enumerate(finish_reasons))

    def _choice(self, index: int, delta: Mapping[str, object], finish_reason: str | None) -> bytes:
        return self._chunk(dump({"index": index, "delta": delta, "logprobs": None, "finish_reason": finish_reason}))


class DocumentWriter:
    """A whole chat completion. Log-probabilities are encoded as their pieces are added: at the end they would take seconds in one go."""

    def __init__(self, accepted: Accepted) -> None:
        self._accepted = accepted
        self._texts: list[list[str]] = [[] for _ in range(accepted.request.num_choices)]
        self._entries: list[list[str]] = [[] for _ in range(accepted.request.num_choices)]
        self._logprobs = ChatLogprobs()

    def add(self, piece: Piece) -> None:
        """More of one choice."""
        self._texts[piece.index].append(piece.text)
        if piece.logprobs:
            self._entries[piece.index].append(self._logprobs.entries(piece.logprobs))

    def finish(self, ending: Ending) -> bytes:
        """The document."""
        begun = {**head(self._accepted, "chat.completion"), "usage": usage_object(ending.usage)}
        choices = ",".join(self._choice(index, reason) for index, reason in enumerate(ending.finish_reasons))
        return f'{dump(begun)[:-1]},"choices":[{choices}]}}'.encode()

    def _choice(self, index: int, finish_reason: str) -> str:
        message = {"role": "assistant", "content": "".join(self._texts[index]), "refusal": None}
        asked = self._accepted.request.num_logprobs is not None
        logprobs = logprobs_object(",".join(self._entries[index])) if asked else "null"
        return f'{{"index":{index},"message":{dump(message)},"logprobs":{logprobs},"finish_reason":"{finish_reason}"}}'


def head(accepted: Accepted, kind: str) -> dict[str, object]:
    """What every document and chunk of an answer begins with; `kind` is its "object"."""
    return {
        "id": accepted.completion_id,
        "object": kind,
        "created": accepted.created_unix_s,
        "model": accepted.model,
        "system_fingerprint": fingerprint(accepted),
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


def _bytes(value: object) -> bytes:
    return dump(value).encode()
