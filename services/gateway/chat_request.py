"""Turns the body of POST /v1/chat/completions into a GenerationRequest, or says which field is wrong."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from services.gateway.chat_fields import check_fields
from services.gateway.chat_messages import parse_messages
from services.gateway.field_types import optional_int
from services.gateway.generation_fields import flag, parse_generation, required
from services.gateway.request import MAX_TOP_LOGPROBS, FieldNames, GenerationRequest
from services.kit.errors import FieldError

_MAX_TOKENS = 2**31 - 1


def parse_chat(body: Mapping[str, Any]) -> GenerationRequest:
    """The request in `body`; FieldError for the first field that is missing, wrong, unknown or not supported."""
    check_fields(body)
    name, limit = _max_output_tokens(body)
    request = replace(parse_generation(body, limit), names=FieldNames(limit=name))
    return replace(request, messages=parse_messages(required(body, "messages")), num_logprobs=_num_logprobs(body))


def _max_output_tokens(body: Mapping[str, Any]) -> tuple[str, int | None]:
    """The smaller of both limits when both are given, since neither may be exceeded, and its name; the present name when none is given."""
    names = ("max_completion_tokens", "max_tokens")
    limits = [(name, optional_int(name, body.get(name), 1, _MAX_TOKENS)) for name in names]
    return min(limits, key=lambda named: _MAX_TOKENS + 1 if named[1] is None else named[1])


def _num_logprobs(body: Mapping[str, Any]) -> int | None:
    """How many likeliest tokens are told beside each token; None when log-probabilities are not asked for."""
    num_top = optional_int("top_logprobs", body.get("top_logprobs"), 0, MAX_TOP_LOGPROBS)
    if flag(body, "logprobs"):
        return num_top or 0
    if num_top is not None:
        raise FieldError("top_logprobs", "top_logprobs is only allowed when logprobs is true")
    return None
