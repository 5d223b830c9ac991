"""The fields of OpenAI's chat request that this version knows and cannot honour, each with the values that ask for nothing.

A field listed here is accepted when its value is null or one of the no-op values, because then leaving it out changes nothing; any other
value is refused, so that no setting is lost in silence. TOLERATED fields are accepted with any value of their type: they have no effect on
the answer (docs/api.md lists them).
"""

from collections.abc import Mapping
from typing import Any

from services.gateway.field_types import optional_string, string_map
from services.kit.errors import FieldError

SUPPORTED = frozenset(
    ("model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens", "temperature", "top_p", "seed", "stop", "n")
)

TOLERATED = {
    "user": optional_string,
    "safety_identifier": optional_string,
    "prompt_cache_key": optional_string,
    "metadata": string_map,
}

NO_OP_VALUES: Mapping[str, tuple[object, ...]] = {
    "audio": (),
    "frequency_penalty": (0,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "logit_bias": ({},),
    "logprobs": (False,),
    "modalities": (["text"],),
    "moderation": (),
    "parallel_tool_calls": (True,),
    "prediction": (),
    "presence_penalty": (0,),
    "prompt_cache_options": (),
    "prompt_cache_retention": ("in_memory",),
    "reasoning_effort": ("none",),
    "response_format": ({"type": "text"},),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (),
    "verbosity": ("medium",),
    "web_search_options": (),
}


def check_fields(body: Mapping[str, Any]) -> None:
    """Raises FieldError for the first field that is unknown, or known and asking for something that is not served."""
    for name, value in body.items():
        if name in SUPPORTED:
            continue
        if name in TOLERATED:
            TOLERATED[name](name, value)
        elif name in NO_OP_VALUES:
            check_no_op(name, value, NO_OP_VALUES[name])
        else:
            raise unknown_field(name)


def check_no_op(param: str, value: object, accepted: tuple[object, ...]) -> None:
    """Raises UNSUPPORTED_FIELD unless `value` is null or one of `accepted`."""
    if value is None or any(_same(value, no_op) for no_op in accepted):
        return
    raise FieldError(param, f"{param} is not supported; leave it out", reason="UNSUPPORTED_FIELD")


def unknown_field(path: str) -> FieldError:
    """The refusal of a field that the API does not have; the path is cut to what fits an error."""
    shown = path if len(path) <= 100 else path[:100] + "..."
    return FieldError(shown, f"unknown field {shown!a}; check its spelling", reason="UNKNOWN_FIELD")


def check_known(path: str, value: Mapping[str, Any], known: frozenset[str]) -> None:
    """Raises UNKNOWN_FIELD for the first key of `value` that is not in `known`."""
    for name in value:
        if name not in known:
            raise unknown_field(f"{path}.{name}")


def _same(value: object, no_op: object) -> bool:
    """Equality that keeps true apart from 1."""
    return value == no_op and isinstance(value, bool) == isinstance(no_op, bool)
