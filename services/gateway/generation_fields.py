"""Reads what all bodies of the REST face that ask for text have in common: everything but the input and the log-probabilities."""

from collections.abc import Mapping
from typing import Any

from services.gateway.field_names import check_known
from services.gateway.field_types import mapping, optional_bool, optional_int, string
from services.gateway.request import MAX_CHOICES, GenerationRequest
from services.gateway.sampling_fields import SAMPLING_FIELDS, parse_sampling
from services.gateway.stop_fields import parse_min_tokens, parse_stop, parse_stop_token_ids
from services.kit.errors import FieldError

GENERATION_FIELDS = SAMPLING_FIELDS | frozenset(
    ("model", "stream", "stream_options", "n", "stop", "stop_token_ids", "min_tokens", "ignore_eos", "include_stop_str_in_output")
)

_STREAM_OPTIONS = frozenset(("include_usage", "include_obfuscation"))


def parse_generation(body: Mapping[str, Any], max_output_tokens: int | None) -> GenerationRequest:
    """A request without input; FieldError for the first field that is missing or wrong."""
    model = string("model", required(body, "model"))
    if not model:
        raise FieldError("model", "model must not be empty")
    stream = flag(body, "stream")
    return GenerationRequest(
        model=model,
        messages=(),
        sampling=parse_sampling(body),
        stop=parse_stop("stop", body.get("stop")),
        max_output_tokens=max_output_tokens,
        stream=stream,
        include_usage=_include_usage(body.get("stream_options"), stream),
        num_choices=optional_int("n", body.get("n"), 1, MAX_CHOICES) or 1,
        min_output_tokens=parse_min_tokens("min_tokens", body.get("min_tokens"), max_output_tokens),
        stop_token_ids=parse_stop_token_ids("stop_token_ids", body.get("stop_token_ids")),
        include_stop=flag(body, "include_stop_str_in_output"),
        ignore_eos=flag(body, "ignore_eos"),
    )


def required(body: Mapping[str, Any], name: str) -> object:
    """The value of a field that may not be missing."""
    if body.get(name) is None:
        raise FieldError(name, f"{name} is required")
    return body[name]


def flag(body: Mapping[str, Any], name: str) -> bool:
    """True or false; false when the field is missing."""
    return optional_bool(name, body.get(name)) or False


def _include_usage(value: object, stream: bool) -> bool:
    """Whether the options of a stream, which nothing else may have, ask for usage."""
    if value is None:
        return False
    if not stream:
        raise FieldError("stream_options", "stream_options is only allowed when stream is true")
    options = mapping("stream_options", value)
    check_known("stream_options", options, _STREAM_OPTIONS)
    if optional_bool("stream_options.include_obfuscation", options.get("include_obfuscation")):
        message = "stream_options.include_obfuscation is not supported; leave it out"
        raise FieldError("stream_options.include_obfuscation", message, reason="UNSUPPORTED_FIELD")
    return optional_bool("stream_options.include_usage", options.get("include_usage")) or False
