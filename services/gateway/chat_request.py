"""Turns the body of POST /v1/chat/completions into a GenerationRequest, or says which field is wrong."""

from collections.abc import Mapping
from typing import Any

from services.gateway.chat_fields import check_fields, check_known
from services.gateway.chat_messages import parse_messages
from services.gateway.field_types import mapping, optional_bool, optional_int, optional_number, string
from services.gateway.request import MAX_STOP_CHARS, MAX_STOPS, SEED_MAX, SEED_MIN, GenerationRequest, SamplingParams, fresh_seed
from services.kit.errors import FieldError

_MAX_TOKENS = 2**31 - 1
_STREAM_OPTIONS = frozenset(("include_usage", "include_obfuscation"))


def parse_chat(body: Mapping[str, Any]) -> GenerationRequest:
    """The request in `body`; FieldError for the first field that is missing, wrong, unknown or not supported."""
    check_fields(body)
    model = required_model(body)
    messages = parse_messages(required(body, "messages"))
    stream = optional_bool("stream", body.get("stream")) or False
    _check_choices(body.get("n"))
    return GenerationRequest(
        model=model,
        messages=messages,
        sampling=make_sampling(body.get("temperature"), body.get("top_p"), body.get("seed"), prefix=""),
        stop=parse_stop("stop", body.get("stop")),
        max_output_tokens=_max_output_tokens(body),
        stream=stream,
        include_usage=include_usage(body.get("stream_options"), stream),
    )


def make_sampling(temperature: object, top_p: object, seed: object, *, prefix: str) -> SamplingParams:
    """Checked sampling parameters with the documented defaults; a missing seed becomes a fresh one."""
    checked_temperature = optional_number(f"{prefix}temperature", temperature, 0, 2)
    checked_top_p = optional_number(f"{prefix}top_p", top_p, 0, 1)
    if checked_top_p == 0:
        raise FieldError(f"{prefix}top_p", f"{prefix}top_p must be above 0; use temperature 0 for greedy answers")
    checked_seed = optional_int(f"{prefix}seed", seed, SEED_MIN, SEED_MAX)
    return SamplingParams(
        temperature=1.0 if checked_temperature is None else checked_temperature,
        top_p=1.0 if checked_top_p is None else checked_top_p,
        seed=fresh_seed() if checked_seed is None else checked_seed,
    )


def parse_stop(param: str, value: object) -> tuple[str, ...]:
    """Stop strings: null, one string, or an array of at most MAX_STOPS; none empty or longer than MAX_STOP_CHARS."""
    if value is None:
        return ()
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list):
        raise FieldError(param, f"{param} must be a string or an array of strings")
    if len(stops) > MAX_STOPS:
        raise FieldError(param, f"{param} must hold at most {MAX_STOPS} strings")
    for stop in stops:
        if not isinstance(stop, str) or not stop:
            raise FieldError(param, f"{param} must hold strings that are not empty")
        if len(stop) > MAX_STOP_CHARS:
            raise FieldError(param, f"{param} must hold strings of at most {MAX_STOP_CHARS} characters")
    return tuple(stops)


def check_num_choices(param: str, n: int) -> None:
    """One choice is what is served; more is a known wish that cannot be honoured."""
    if n != 1:
        raise FieldError(param, f"{param} above 1 is not supported; send one request per choice", reason="UNSUPPORTED_FIELD")


def _check_choices(value: object) -> None:
    n = optional_int("n", value, 1, 128)
    if n is not None:
        check_num_choices("n", n)


def required_model(body: Mapping[str, Any]) -> str:
    """The model's name, which is not empty."""
    model = string("model", required(body, "model"))
    if not model:
        raise FieldError("model", "model must not be empty")
    return model


def required(body: Mapping[str, Any], name: str) -> object:
    """The value of a field that may not be missing."""
    if body.get(name) is None:
        raise FieldError(name, f"{name} is required")
    return body[name]


def _max_output_tokens(body: Mapping[str, Any]) -> int | None:
    """The smaller of both names when both are given: neither limit may be exceeded."""
    names = ("max_tokens", "max_completion_tokens")
    limits = [optional_int(name, body.get(name), 1, _MAX_TOKENS) for name in names]
    return min((limit for limit in limits if limit is not None), default=None)


def include_usage(value: object, stream: bool) -> bool:
    """Whether `stream_options`, which only a stream may have, ask for usage."""
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
