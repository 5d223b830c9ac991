"""Strict JSON: what the gateway accepts is one object in UTF-8, and whatever else comes is a typed refusal."""

import base64
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.json_body import MAX_CONTAINERS, MAX_DEPTH, parse_object
from services.kit.errors import InvalidArgument, MalformedBody

_SUITE = Path(__file__).parents[2] / "data" / "jsontestsuite" / "cases.json"
CASES = {name: base64.b64decode(text) for name, text in json.loads(_SUITE.read_text()).items()}
LIMIT = 1_000_000


def parse(body: bytes) -> dict[str, Any]:
    return parse_object(body, LIMIT)


def in_object(body: bytes) -> bytes:
    return b'{"value":' + body + b"}"


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("n_")])
def test_parse_object_not_json_is_malformed(name: str) -> None:
    with pytest.raises(MalformedBody):
        parse(CASES[name])
    with pytest.raises(MalformedBody):
        parse(in_object(CASES[name]))


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("y_") and "duplicated_key" not in name])
def test_parse_object_json_is_read_as_the_standard_library_does(name: str) -> None:
    expected = json.loads(CASES[name])
    assert parse(in_object(CASES[name])) == {"value": expected}
    if isinstance(expected, dict):
        assert parse(CASES[name]) == expected
    else:
        with pytest.raises(MalformedBody):
            parse(CASES[name])


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("i_")])
def test_parse_object_undecided_json_is_read_or_refused(name: str) -> None:
    for body in (CASES[name], in_object(CASES[name])):
        try:
            parse(body)
        except MalformedBody as error:
            assert error.message.isascii()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"   ",
        b"null",
        b"[]",
        b'"text"',
        b"{}{}",
        b'\xef\xbb\xbf{"a":1}',
        '{"a":1}'.encode("utf-16"),
        '{"a":"\u4f60\u597d"}'.encode("gbk"),
        b'{"a":1,"a":1}',
        b'{"a":{"b":1,"b":2}}',
        b'{"a":NaN}',
        b'{"a":-Infinity}',
        b'{"a":1e999}',
        b'{"a":' + b"9" * 5000 + b"}",
        rb'{"a":"\ud800"}',
        rb'{"\udc00":1}',
        b'{"a":"\xed\xa0\x80"}',
        b"[" * 100_000,
        b'{"a":' * 3000 + b"1" + b"}" * 3000,
        b'[{"":' * 50_000,
    ],
    ids=lambda body: repr(body[:20]),
)
def test_parse_object_hostile_body_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedBody):
        parse(body)


def test_parse_object_depth_counts_brackets_outside_strings_only() -> None:
    deepest = b'{"a":' * (MAX_DEPTH - 1) + b"{}" + b"}" * (MAX_DEPTH - 1)
    assert parse(deepest)
    with pytest.raises(MalformedBody, match="nested"):
        parse(b'{"a":' + deepest + b"}")
    assert parse(b'{"a":"' + b"[{" * 1000 + rb"\"" + b"[" * 1000 + b'"}')["a"].count("[") == 2000
    assert len(parse(b'{"a":[' + b",".join([b"{}"] * 1000) + b"]}")["a"]) == 1000


def test_parse_object_many_containers_are_refused_before_they_are_made() -> None:
    most = in_object(b"[" + b"[]," * (MAX_CONTAINERS - 3) + b'"[[[{{{"]')
    assert len(parse(most)["value"]) == MAX_CONTAINERS - 2
    with pytest.raises(MalformedBody, match="arrays and objects"):
        parse(in_object(b"[" + b"[]," * MAX_CONTAINERS + b"[]]"))


def test_parse_object_surrogate_pair_and_nul_are_characters() -> None:
    assert parse(rb'{"a":"\ud83d\ude00\u0000"}') == {"a": "\U0001f600\0"}


def test_parse_object_too_large_says_so() -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_object(b'{"a":1}', 6)
    assert caught.value.reason == "BODY_TOO_LARGE"
    assert parse_object(b'{"a":1}', 7) == {"a": 1}


@given(st.binary(max_size=200))
def test_parse_object_any_bytes_are_read_or_malformed(body: bytes) -> None:
    with contextlib.suppress(MalformedBody):
        assert isinstance(parse(body), dict)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), _JSON, max_size=5), st.booleans())
def test_parse_object_reads_back_what_was_written(document: dict[str, Any], ascii_only: bool) -> None:
    assert parse(json.dumps(document, ensure_ascii=ascii_only).encode()) == document
