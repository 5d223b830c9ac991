"""The fields of OpenAI's completion request: what is served, what is tolerated, and what is refused unless it asks for nothing."""

from collections.abc import Mapping
from typing import Any

from services.gateway.chat_fields import check_no_op, unknown_field
from services.gateway.field_types import optional_string

SUPPORTED = frozenset(
    (
        "model",
        "prompt",
        "max_tokens",
        "temperature",
        "top_p",
        "n",
        "stream",
        "stream_options",
        "stop",
        "seed",
        "echo",
        "logprobs",
        "logit_bias",
        "frequency_penalty",
        "presence_penalty",
        # Known from vLLM; OpenAI has no name for them.
        "top_k",
        "min_p",
        "repetition_penalty",
        "ignore_eos",
        "min_tokens",
        "stop_token_ids",
        "include_stop_str_in_output",
    )
)

TOLERATED = {"user": optional_string}

NO_OP_VALUES: Mapping[str, tuple[object, ...]] = {"suffix": ("",), "best_of": (1,)}


def check_completion_fields(body: Mapping[str, Any]) -> None:
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
