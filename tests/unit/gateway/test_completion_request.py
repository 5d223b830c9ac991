"""Every field of a completion request is honoured, or has no effect by its documented no-op value, or is refused by its name."""

from typing import Any

import pytest

from services.gateway.completion_fields import NO_OP_VALUES, SUPPORTED, TOLERATED
from services.gateway.completion_request import DEFAULT_MAX_TOKENS, parse_completion
from services.gateway.request import GenerationRequest
from services.kit.errors import FieldError

ABSENT = object()


def parse(**fields: Any) -> GenerationRequest:
    body = {"model": "m", "prompt": "hi", **fields}
    return parse_completion({name: value for name, value in body.items() if value is not ABSENT})


def refused(**fields: Any) -> FieldError:
    with pytest.raises(FieldError) as caught:
        parse(**fields)
    assert caught.value.message
    return caught.value


def test_parse_completion_least_body_takes_documented_defaults() -> None:
    request = parse()
    assert (request.model, request.prompt, request.messages) == ("m", "hi", ())
    assert (request.max_output_tokens, request.num_choices, request.stream, request.echo) == (DEFAULT_MAX_TOKENS, 1, False, False)
    assert (request.num_logprobs, request.num_prompt_logprobs, request.ignore_eos) == (None, None, False)


@pytest.mark.parametrize(
    ("prompt", "read"),
    [
        ("hi", "hi"),
        (["hi"], "hi"),
        ([1, 2, 0], (1, 2, 0)),
        ([[1, 2, 0]], (1, 2, 0)),
    ],
    ids=str,
)
def test_parse_completion_prompt_is_a_text_or_token_ids(prompt: object, read: object) -> None:
    assert parse(prompt=prompt).prompt == read


@pytest.mark.parametrize(
    ("prompt", "reason"),
    [
        (ABSENT, "INVALID_FIELD"),
        (None, "INVALID_FIELD"),
        ("", "INVALID_FIELD"),
        ([], "INVALID_FIELD"),
        ([""], "INVALID_FIELD"),
        ([[]], "INVALID_FIELD"),
        (["a", "b"], "UNSUPPORTED_FIELD"),
        ([[1], [2]], "UNSUPPORTED_FIELD"),
        ([[1], "b"], "UNSUPPORTED_FIELD"),
        ([1, "b"], "INVALID_FIELD"),
        ([[1, [2]]], "INVALID_FIELD"),
        ([1.0], "INVALID_FIELD"),
        ([True], "INVALID_FIELD"),
        ([None], "INVALID_FIELD"),
        ([-1], "TOKEN_OUT_OF_RANGE"),
        ([2**31], "TOKEN_OUT_OF_RANGE"),
        ([10**30], "TOKEN_OUT_OF_RANGE"),
        (7, "INVALID_FIELD"),
        ({"text": "a"}, "INVALID_FIELD"),
    ],
    ids=str,
)
def test_parse_completion_other_prompts_are_refused(prompt: object, reason: str) -> None:
    error = refused(prompt=prompt)
    assert (error.param, error.reason) == ("prompt", reason)


def test_parse_completion_several_prompts_are_told_what_to_do_instead() -> None:
    assert "one request per prompt" in refused(prompt=["a", "b"]).message


def test_parse_completion_logprobs_of_the_prompt_are_asked_for_by_echo() -> None:
    assert parse(logprobs=3).num_prompt_logprobs is None
    assert parse(echo=True).num_prompt_logprobs is None
    request = parse(logprobs=0, echo=True)
    assert (request.num_logprobs, request.num_prompt_logprobs, request.echo) == (0, 0, True)


def test_parse_completion_explicit_values_are_kept() -> None:
    request = parse(max_tokens=3, n=2, stream=True, stream_options={"include_usage": True}, stop="x", ignore_eos=True, min_tokens=2)
    assert (request.max_output_tokens, request.num_choices, request.stream, request.include_usage) == (3, 2, True, True)
    assert (request.stop, request.ignore_eos, request.min_output_tokens) == (("x",), True, 2)


@pytest.mark.parametrize("name", sorted((SUPPORTED | set(TOLERATED) | set(NO_OP_VALUES)) - {"model", "prompt"}))
def test_parse_completion_null_is_as_good_as_absent(name: str) -> None:
    assert parse(**{name: None}).prompt == "hi"


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in NO_OP_VALUES.items() for value in values])
def test_parse_completion_no_op_value_is_accepted(name: str, value: object) -> None:
    assert parse(**{name: value}).prompt == "hi"


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("suffix", "end", "UNSUPPORTED_FIELD"),
        ("best_of", 2, "UNSUPPORTED_FIELD"),
        ("messages", [], "UNKNOWN_FIELD"),
        ("max_completion_tokens", 4, "UNKNOWN_FIELD"),
        ("max_tokens", 0, "INVALID_FIELD"),
        ("max_tokens", -1, "INVALID_FIELD"),
        ("max_tokens", 1.5, "INVALID_FIELD"),
        ("logprobs", 21, "INVALID_FIELD"),
        ("logprobs", -1, "INVALID_FIELD"),
        ("logprobs", True, "INVALID_FIELD"),
        ("echo", 1, "INVALID_FIELD"),
        ("n", 17, "INVALID_FIELD"),
        ("min_tokens", 17, "INVALID_FIELD"),
        ("stream_options", {"include_usage": True}, "INVALID_FIELD"),
        ("user", 5, "INVALID_FIELD"),
    ],
    ids=str,
)
def test_parse_completion_wrong_value_is_refused_by_name(name: str, value: object, reason: str) -> None:
    error = refused(**{name: value})
    assert (error.param, error.reason) == (name, reason)
