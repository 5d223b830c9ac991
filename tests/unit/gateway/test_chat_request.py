"""Every field of a chat request is honoured, or has no effect by its documented no-op value, or is refused by its name."""

import json
from typing import Any

import pytest

from services.gateway.chat_fields import NO_OP_VALUES, SUPPORTED, TOLERATED
from services.gateway.chat_request import parse_chat
from services.gateway.request import MAX_LOGIT_BIASES, MAX_STOP_CHARS, SEED_MAX, SEED_MIN, GenerationRequest, Message, SamplingParams
from services.kit.errors import FieldError

SAMPLING = {
    "temperature": 0,
    "top_p": 0.5,
    "seed": -7,
    "top_k": 40,
    "min_p": 0.25,
    "repetition_penalty": 1.5,
    "frequency_penalty": -2,
    "presence_penalty": 2,
    "logit_bias": {"0": -100, "49151": 0.5},
}
USER = {"role": "user", "content": "hi"}
ABSENT = object()


def parse(**fields: Any) -> GenerationRequest:
    body = {"model": "m", "messages": [USER], **fields}
    return parse_chat({name: value for name, value in body.items() if value is not ABSENT})


def refused(**fields: Any) -> FieldError:
    with pytest.raises(FieldError) as caught:
        parse(**fields)
    assert caught.value.message
    assert len(json.dumps(caught.value.message)) < 600
    return caught.value


def test_parse_chat_least_body_takes_documented_defaults() -> None:
    request = parse()
    assert request.model == "m"
    assert request.messages == (Message("user", "hi"),)
    assert (request.sampling.temperature, request.sampling.top_p) == (1.0, 1.0)
    assert (request.stop, request.max_output_tokens, request.stream, request.include_usage) == ((), None, False, False)


def test_parse_chat_missing_seed_is_fresh_each_time() -> None:
    assert len({parse().sampling.seed for _ in range(20)}) == 20


def test_parse_chat_explicit_values_are_kept() -> None:
    fields = {"stop": "x", "max_tokens": 3, "stream": True, "stream_options": {"include_usage": True}, "n": 16}
    fields |= {"min_tokens": 2, "stop_token_ids": [4, 0], "ignore_eos": True, "include_stop_str_in_output": True}
    request = parse(**SAMPLING, **fields, logprobs=True, top_logprobs=20)
    assert request.sampling == SamplingParams(0.0, 0.5, -7, 40, 0.25, 1.5, -2.0, 2.0, ((0, -100.0), (49151, 0.5)))
    assert (request.stop, request.max_output_tokens, request.stream, request.include_usage) == (("x",), 3, True, True)
    assert (request.num_choices, request.min_output_tokens, request.stop_token_ids) == (16, 2, (4, 0))
    assert (request.ignore_eos, request.include_stop, request.num_logprobs, request.num_prompt_logprobs) == (True, True, 20, None)


def test_parse_chat_values_that_ask_for_nothing_are_the_defaults() -> None:
    nothing = {"top_k": 0, "min_p": 0, "repetition_penalty": 1, "frequency_penalty": 0, "presence_penalty": 0, "logit_bias": {}}
    nothing |= {"logprobs": False, "n": 1, "min_tokens": 0, "stop_token_ids": [], "ignore_eos": False, "include_stop_str_in_output": False}
    assert parse(seed=1, **nothing) == parse(seed=1, top_k=-1) == parse(seed=1)


@pytest.mark.parametrize(("fields", "expected"), [({"logprobs": True}, 0), ({"logprobs": True, "top_logprobs": 3}, 3), ({}, None)])
def test_parse_chat_logprobs_are_of_the_chosen_tokens_and_so_many_likeliest(fields: dict[str, Any], expected: int | None) -> None:
    assert parse(**fields).num_logprobs == expected


@pytest.mark.parametrize("name", sorted((SUPPORTED | set(TOLERATED) | set(NO_OP_VALUES)) - {"model", "messages"}))
def test_parse_chat_null_is_as_good_as_absent(name: str) -> None:
    request = parse(**{name: None})
    assert request.messages == (Message("user", "hi"),)


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in NO_OP_VALUES.items() for value in values])
def test_parse_chat_no_op_value_is_accepted(name: str, value: object) -> None:
    assert parse(**{name: value}).model == "m"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tools", [{"type": "function", "function": {"name": "f"}}]),
        ("tools", {}),
        ("tool_choice", "required"),
        ("tool_choice", {"type": "function", "function": {"name": "absent"}}),
        ("parallel_tool_calls", False),
        ("functions", [{"name": "f"}]),
        ("function_call", {"name": "f"}),
        ("response_format", {"type": "json_object"}),
        ("response_format", {"type": "json_schema"}),
        ("response_format", {"type": "json_schema", "json_schema": {"name": "s", "schema": {}}}),
        ("modalities", ["text", "audio"]),
        ("audio", {"voice": "alloy"}),
        ("prediction", {"type": "content", "content": "x"}),
        ("reasoning_effort", "high"),
        ("service_tier", "flex"),
        ("store", True),
        ("verbosity", "low"),
        ("web_search_options", {}),
        ("moderation", {}),
        ("prompt_cache_options", {}),
        ("prompt_cache_retention", "24h"),
    ],
)
def test_parse_chat_known_wish_that_is_not_served_is_refused_by_name(name: str, value: object) -> None:
    error = refused(**{name: value})
    assert (error.param, error.reason) == (name, "UNSUPPORTED_FIELD")


@pytest.mark.parametrize("name", ["max_tokns", "temprature", "top_a", "best_of", "ignore_eso", "prompt", "Model", "", "x" * 5000, "\u4f60"])
def test_parse_chat_unknown_field_is_refused_by_name(name: str) -> None:
    error = refused(**{name: 0})
    assert error.reason == "UNKNOWN_FIELD"
    assert error.param == name or (error.param == "x" * 100 + "...")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": ABSENT}, "model"),
        ({"model": None}, "model"),
        ({"model": ""}, "model"),
        ({"model": 7}, "model"),
        ({"messages": ABSENT}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": {}}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": ["hi"]}, "messages[0]"),
        ({"messages": [USER, {"role": "wizard", "content": "x"}]}, "messages[1].role"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": None, "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        ({"messages": [{"role": "assistant", "content": None}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": []}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{"type": "hologram"}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": [{"text": "x"}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        ({"messages": [USER] * 4097}, "messages"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": 2.5}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"n": 0}, "n"),
        ({"n": 17}, "n"),
        ({"n": True}, "n"),
        ({"top_k": -2}, "top_k"),
        ({"top_k": 1.0}, "top_k"),
        ({"top_k": 2**31}, "top_k"),
        ({"min_p": -0.1}, "min_p"),
        ({"min_p": 1.1}, "min_p"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"repetition_penalty": 2.1}, "repetition_penalty"),
        ({"frequency_penalty": 2.1}, "frequency_penalty"),
        ({"frequency_penalty": False}, "frequency_penalty"),
        ({"presence_penalty": -2.1}, "presence_penalty"),
        ({"presence_penalty": "0"}, "presence_penalty"),
        ({"logit_bias": [1]}, "logit_bias"),
        ({"logit_bias": {"-1": 1}}, "logit_bias"),
        ({"logit_bias": {"AI": 1}}, "logit_bias"),
        ({"logit_bias": {"01": 1}}, "logit_bias"),
        ({"logit_bias": {"1.0": 1}}, "logit_bias"),
        ({"logit_bias": {"": 1}}, "logit_bias"),
        ({"logit_bias": {"\u0661": 1}}, "logit_bias"),
        ({"logit_bias": {"1" * 5000: 1}}, "logit_bias"),
        ({"logit_bias": {"1": 100.5}}, "logit_bias"),
        ({"logit_bias": {"1": -1e9}}, "logit_bias"),
        ({"logit_bias": {"1": None}}, "logit_bias"),
        ({"logit_bias": {"1": True}}, "logit_bias"),
        ({"logit_bias": {"1": float("nan")}}, "logit_bias"),
        ({"logit_bias": {str(token_id): 1 for token_id in range(MAX_LOGIT_BIASES + 1)}}, "logit_bias"),
        ({"logprobs": 0}, "logprobs"),
        ({"logprobs": 5}, "logprobs"),
        ({"top_logprobs": 0}, "top_logprobs"),
        ({"logprobs": False, "top_logprobs": 5}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
        ({"min_tokens": -1}, "min_tokens"),
        ({"min_tokens": 6, "max_tokens": 5}, "min_tokens"),
        ({"min_tokens": 6, "max_tokens": 9, "max_completion_tokens": 5}, "min_tokens"),
        ({"stop_token_ids": 5}, "stop_token_ids"),
        ({"stop_token_ids": ["5"]}, "stop_token_ids"),
        ({"stop_token_ids": [True]}, "stop_token_ids"),
        ({"stop_token_ids": [-1]}, "stop_token_ids"),
        ({"stop_token_ids": list(range(17))}, "stop_token_ids"),
        ({"ignore_eos": 1}, "ignore_eos"),
        ({"include_stop_str_in_output": "yes"}, "include_stop_str_in_output"),
        ({"n": 1.0}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 5.0}, "max_tokens"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"max_tokens": 2**31}, "max_tokens"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"seed": 1.5}, "seed"),
        ({"seed": SEED_MAX + 1}, "seed"),
        ({"seed": SEED_MIN - 1}, "seed"),
        ({"seed": "1"}, "seed"),
        ({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
        ({"stop": ""}, "stop"),
        ({"stop": ["a", ""]}, "stop"),
        ({"stop": [1]}, "stop"),
        ({"stop": {}}, "stop"),
        ({"stop": "x" * (MAX_STOP_CHARS + 1)}, "stop"),
        ({"user": 7}, "user"),
        ({"metadata": "x"}, "metadata"),
        ({"metadata": {"a": 1}}, "metadata"),
    ],
)
def test_parse_chat_wrong_value_names_the_field(fields: dict[str, Any], param: str) -> None:
    for stream in ({}, {"stream": True}, {"stream": False}):
        error = refused(**{**stream, **fields})
        assert (error.param, error.reason) == (param, "INVALID_FIELD")


@pytest.mark.parametrize(
    ("fields", "param", "reason"),
    [
        ({"messages": [{**USER, "nmae": "x"}]}, "messages[0].nmae", "UNKNOWN_FIELD"),
        ({"messages": [{**USER, "tool_calls": []}]}, "messages[0].tool_calls", "UNKNOWN_FIELD"),
        ({"messages": [{**USER, "name": "Ann"}]}, "messages[0].name", "UNSUPPORTED_FIELD"),
        ({"messages": [{"role": "tool", "content": "x", "tool_call_id": "1"}]}, "messages[0].role", "UNSUPPORTED_FIELD"),
        ({"messages": [{"role": "function", "content": "x", "name": "f"}]}, "messages[0].role", "UNSUPPORTED_FIELD"),
        ({"messages": [{"role": "assistant", "content": None, "tool_calls": [{}]}]}, "messages[0].tool_calls", "UNSUPPORTED_FIELD"),
        ({"messages": [{"role": "assistant", "content": "x", "refusal": "no"}]}, "messages[0].refusal", "UNSUPPORTED_FIELD"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "txt": 1}]}]},
            "messages[0].content[0].txt",
            "UNKNOWN_FIELD",
        ),
        ({"stream": True, "stream_options": {"usage": True}}, "stream_options.usage", "UNKNOWN_FIELD"),
        (
            {"stream": True, "stream_options": {"include_obfuscation": True}},
            "stream_options.include_obfuscation",
            "UNSUPPORTED_FIELD",
        ),
    ],
)
def test_parse_chat_nested_field_is_refused_by_its_path(fields: dict[str, Any], param: str, reason: str) -> None:
    error = refused(**fields)
    assert (error.param, error.reason) == (param, reason)


@pytest.mark.parametrize("role", ["system", "user"])
@pytest.mark.parametrize("kind", ["image_url", "input_audio", "file"])
def test_parse_chat_part_the_model_cannot_read_names_its_index(role: str, kind: str) -> None:
    error = refused(messages=[{"role": role, "content": [{"type": "text", "text": "a"}, {"type": kind, kind: {}}]}])
    assert (error.param, error.reason) == ("messages[0].content[1]", "UNSUPPORTED_FIELD")


def test_parse_chat_string_and_single_part_are_the_same() -> None:
    part = [{"type": "text", "text": "hi"}]
    assert parse(messages=[{"role": "user", "content": part}]).messages == parse().messages
    assert parse(messages=[{"role": "assistant", "content": part}]).messages == (Message("assistant", "hi"),)


def test_parse_chat_several_parts_are_joined_by_line_breaks() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b", "prompt_cache_breakpoint": None}]
    assert parse(messages=[{"role": "user", "content": parts}]).messages == (Message("user", "a\nb"),)


def test_parse_chat_developer_is_system() -> None:
    messages = [{"role": "developer", "content": "a"}, {"role": "system", "content": "b"}, {**USER, "name": None}]
    assert [message.role for message in parse(messages=messages).messages] == ["system", "system", "user"]


def test_parse_chat_assistant_with_empty_extras_is_accepted() -> None:
    turn = {"role": "assistant", "content": "", "tool_calls": [], "refusal": None, "function_call": None, "audio": None}
    assert parse(messages=[USER, turn, USER]).messages[1] == Message("assistant", "")


def test_parse_chat_smaller_of_both_limits_counts() -> None:
    assert parse(max_tokens=50, max_completion_tokens=5).max_output_tokens == 5
    assert parse(max_tokens=5, max_completion_tokens=50).max_output_tokens == 5
    assert parse(max_completion_tokens=7).max_output_tokens == 7


@pytest.mark.parametrize("seed", [SEED_MIN, -1, 0, SEED_MAX])
def test_parse_chat_any_64_bit_seed_is_kept(seed: int) -> None:
    assert parse(seed=seed).sampling.seed == seed


def test_parse_chat_four_stops_and_none_are_accepted() -> None:
    assert parse(stop=["a", "b", "c", "\n"]).stop == ("a", "b", "c", "\n")
    assert parse(stop=[]).stop == ()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"stream": "yes"}, "stream"),
        ({"stream": 1}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": False, "stream_options": {}}, "stream_options"),
        ({"stream": None, "stream_options": {}}, "stream_options"),
        ({"stream": True, "stream_options": []}, "stream_options"),
        ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
    ],
)
def test_parse_chat_wrong_stream_wish_names_the_field(fields: dict[str, Any], param: str) -> None:
    error = refused(**fields)
    assert (error.param, error.reason) == (param, "INVALID_FIELD")


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}, {"include_usage": None}, {"include_obfuscation": False}])
def test_parse_chat_stream_without_wish_for_usage_has_none(options: object) -> None:
    assert parse(stream=True, stream_options=options).include_usage is False


def test_parse_chat_tolerated_fields_have_no_effect() -> None:
    plain = parse(seed=1)
    assert parse(seed=1, user="u", metadata={"a": "b"}, safety_identifier="s", prompt_cache_key="k") == plain
