"""Turns the body of POST /v1/completions into a GenerationRequest, or says which field is wrong."""

from collections.abc import Mapping
from typing import Any

from services.gateway.chat_request import include_usage, make_sampling, parse_stop, required, required_model
from services.gateway.completion_fields import check_completion_fields
from services.gateway.field_types import array, optional_bool, optional_int
from services.gateway.request import MAX_TOP_LOGPROBS, GenerationRequest, SamplingParams
from services.kit.errors import FieldError, InvalidArgument

DEFAULT_MAX_TOKENS = 16
"""As in the OpenAI API: unlike a chat completion this one does not go on to the end of the context."""

_MAX_INT = 2**31 - 1


def parse_completion(body: Mapping[str, Any]) -> GenerationRequest:
    """The request in `body`; FieldError for the first field that is missing, wrong, unknown or not supported."""
    check_completion_fields(body)
    stream = optional_bool("stream", body.get("stream")) or False
    num_logprobs = optional_int("logprobs", body.get("logprobs"), 0, MAX_TOP_LOGPROBS)
    echo = optional_bool("echo", body.get("echo")) or False
    return GenerationRequest(
        model=required_model(body),
        messages=(),
        prompt=parse_prompt(required(body, "prompt")),
        sampling=_sampling(body),
        stop=parse_stop("stop", body.get("stop")),
        max_output_tokens=optional_int("max_tokens", body.get("max_tokens"), 1, _MAX_INT) or DEFAULT_MAX_TOKENS,
        stream=stream,
        include_usage=include_usage(body.get("stream_options"), stream),
        ignore_eos=optional_bool("ignore_eos", body.get("ignore_eos")) or False,
        num_logprobs=num_logprobs,
        num_prompt_logprobs=num_logprobs if echo else None,
        echo=echo,
    )


def parse_prompt(value: object) -> str | tuple[int, ...]:
    """A text, or token ids: bare, or as the only prompt of an array of prompts."""
    if isinstance(value, str):
        return _text(value)
    items = array("prompt", value)
    if not items:
        raise FieldError("prompt", "prompt must not be empty")
    first = items[0]
    if isinstance(first, str | list):
        if len(items) > 1:
            message = "prompt holds more than one prompt, which is not supported; send one request per prompt"
            raise FieldError("prompt", message, reason="UNSUPPORTED_FIELD")
        return _text(first) if isinstance(first, str) else _token_ids(first)
    return _token_ids(items)


def _text(prompt: str) -> str:
    if not prompt:
        raise FieldError("prompt", "prompt must not be empty")
    return prompt


def _token_ids(ids: list[Any]) -> tuple[int, ...]:
    """Token ids; whether the model has them is found out when the model is known."""
    if not ids:
        raise FieldError("prompt", "prompt must not be empty")
    if any(type(token_id) is not int for token_id in ids):
        raise FieldError("prompt", "prompt must be a string or an array of token ids, which are whole numbers")
    if not 0 <= min(ids) <= max(ids) <= _MAX_INT:
        raise InvalidArgument("a token id of prompt is outside the vocabulary", reason="TOKEN_OUT_OF_RANGE", metadata={"param": "prompt"})
    return tuple(ids)


def _sampling(body: Mapping[str, Any]) -> SamplingParams:
    return make_sampling(body.get("temperature"), body.get("top_p"), body.get("seed"), prefix="")
