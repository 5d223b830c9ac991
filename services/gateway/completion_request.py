"""Turns the body of POST /v1/completions into a GenerationRequest, or says which field is wrong."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from services.gateway.completion_fields import check_completion_fields
from services.gateway.field_types import array, optional_int
from services.gateway.generation_fields import flag, parse_generation, required
from services.gateway.request import MAX_TOP_LOGPROBS, FieldNames, GenerationRequest
from services.kit.errors import FieldError

DEFAULT_MAX_TOKENS = 16
"""As in the OpenAI API: unlike a chat completion this one does not go on to the end of the context."""

_MAX_INT = 2**31 - 1
_NAMES = FieldNames(input="prompt", limit="max_tokens")


def parse_completion(body: Mapping[str, Any]) -> GenerationRequest:
    """The request in `body`; FieldError for the first field that is missing, wrong, unknown or not supported."""
    check_completion_fields(body)
    max_output_tokens = optional_int("max_tokens", body.get("max_tokens"), 1, _MAX_INT) or DEFAULT_MAX_TOKENS
    num_logprobs = optional_int("logprobs", body.get("logprobs"), 0, MAX_TOP_LOGPROBS)
    echo = flag(body, "echo")
    return replace(
        parse_generation(body, max_output_tokens),
        prompt=parse_prompt(required(body, "prompt")),
        num_logprobs=num_logprobs,
        num_prompt_logprobs=num_logprobs if echo else None,
        echo=echo,
        names=_NAMES,
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
        raise FieldError("prompt", "prompt holds a token id outside the model's vocabulary", reason="TOKEN_OUT_OF_RANGE")
    return tuple(ids)
