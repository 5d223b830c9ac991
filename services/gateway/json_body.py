"""Parses request bodies as strict JSON, so that what the gateway understood is exactly what the client wrote."""

import json
import re
from typing import Any, NoReturn

from services.kit.errors import InvalidArgument, MalformedBody

MAX_DEPTH = 64
MAX_CONTAINERS = 65_536

_BOM = b"\xef\xbb\xbf"
_TOKENS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)
_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def parse_object(body: bytes, max_bytes: int) -> dict[str, Any]:
    """The JSON object in `body`.

    Refused as MALFORMED_BODY: anything that is not one JSON document in UTF-8, a byte-order mark, duplicate keys, NaN and numbers that are
    not finite, lone surrogates, nesting deeper than MAX_DEPTH, more than MAX_CONTAINERS arrays and objects, and a document that is not an
    object. BODY_TOO_LARGE above `max_bytes`. Never raises anything else, however hostile the body is.
    """
    if len(body) > max_bytes:
        raise InvalidArgument(f"the body has {len(body)} bytes; at most {max_bytes} are accepted", reason="BODY_TOO_LARGE")
    if body.startswith(_BOM):
        raise MalformedBody("the body starts with a byte-order mark; send plain UTF-8")
    _check_nesting(body)
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedBody(f"the body is not UTF-8: byte {error.start} cannot be decoded") from None
    document = _parse(text)
    if not isinstance(document, dict):
        raise MalformedBody("the body must be a JSON object")
    if _ESCAPED_SURROGATE.search(text) is not None:
        _check_surrogates(document)
    return document


def _parse(text: str) -> Any:
    if not text.strip():
        raise MalformedBody("the body is empty; send a JSON object")
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)
    except json.JSONDecodeError as error:
        raise MalformedBody(f"the body is not valid JSON: {error.msg} at line {error.lineno} column {error.colno}") from None
    except ValueError:
        # int() refuses numbers of more than 4300 digits.
        raise MalformedBody("the body holds a number that is too long") from None


def _check_nesting(body: bytes) -> None:
    """Counts containers outside strings before the parser makes them; the exact scan runs only when there are enough to be too deep."""
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return
    depth = num_containers = 0
    for match in _TOKENS.finditer(body):
        first = match.group()[:1]
        if first in (b"[", b"{"):
            depth, num_containers = depth + 1, num_containers + 1
            if depth > MAX_DEPTH:
                raise MalformedBody(f"the body is nested deeper than {MAX_DEPTH} levels")
            if num_containers > MAX_CONTAINERS:
                raise MalformedBody(f"the body holds more than {MAX_CONTAINERS} arrays and objects")
        elif first != b'"':
            depth -= 1


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise MalformedBody(f"the key {twice[:64]!a} appears twice in one object")
    return found


def _no_constant(_: str) -> NoReturn:
    raise MalformedBody("NaN and Infinity are not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise MalformedBody("the body holds a number that is out of range")
    return number


def _check_surrogates(document: object) -> None:
    try:
        json.dumps(document, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise MalformedBody("the body holds a lone surrogate, which is not a character") from None
