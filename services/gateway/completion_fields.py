"""The fields of OpenAI's completion request: what is served, what is tolerated, and what is refused unless it asks for nothing."""

from collections.abc import Mapping
from typing import Any

from services.gateway.field_names import check_names
from services.gateway.field_types import optional_string
from services.gateway.generation_fields import GENERATION_FIELDS

SUPPORTED = GENERATION_FIELDS | frozenset(("prompt", "max_tokens", "echo", "logprobs"))

TOLERATED = {"user": optional_string}

NO_OP_VALUES: Mapping[str, tuple[object, ...]] = {"suffix": ("",), "best_of": (1,)}


def check_completion_fields(body: Mapping[str, Any]) -> None:
    """Raises FieldError for the first field that is unknown, or known and asking for something that is not served."""
    check_names(body, SUPPORTED, TOLERATED, NO_OP_VALUES)
