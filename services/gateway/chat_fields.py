"""The fields of OpenAI's chat request that this version knows and cannot honour, each with the values that ask for nothing.

A field listed here is accepted when its value is null or one of the no-op values, because then leaving it out changes nothing; any other
value is refused, so that no setting is lost in silence. TOLERATED fields are accepted with any value of their type: they have no effect on
the answer (docs/api.md lists them).
"""

from collections.abc import Mapping
from typing import Any

from services.gateway.field_names import check_names
from services.gateway.field_types import optional_string, string_map
from services.gateway.generation_fields import GENERATION_FIELDS

SUPPORTED = GENERATION_FIELDS | frozenset(("messages", "max_tokens", "max_completion_tokens", "logprobs", "top_logprobs"))

TOLERATED = {
    "user": optional_string,
    "safety_identifier": optional_string,
    "prompt_cache_key": optional_string,
    "metadata": string_map,
}

NO_OP_VALUES: Mapping[str, tuple[object, ...]] = {
    "audio": (),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "modalities": (["text"],),
    "moderation": (),
    "parallel_tool_calls": (True,),
    "prediction": (),
    "prompt_cache_options": (),
    "prompt_cache_retention": ("in_memory",),
    "reasoning_effort": ("none",),
    "response_format": ({"type": "text"},),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "verbosity": ("medium",),
    "web_search_options": (),
}


def check_fields(body: Mapping[str, Any]) -> None:
    """Raises FieldError for the first field that is unknown, or known and asking for something that is not served."""
    check_names(body, SUPPORTED, TOLERATED, NO_OP_VALUES)
