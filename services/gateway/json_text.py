"""Encodes values as compact JSON that every client's line splitter leaves whole."""

import json

_encode = json.JSONEncoder(ensure_ascii=False).encode
_encode_compactly = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode  # Made once: json.dumps makes one per call.
# Valid inside JSON, but some clients' line splitters take them for the end of an event's line.
_LINE_BREAKS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}


def encode_text(text: str) -> str:
    """The text as a JSON string that no line splitter takes apart."""
    return on_one_line(_encode(text))


def on_one_line(document: str) -> str:
    """JSON that no line splitter takes apart."""
    return document if document.isascii() else document.translate(_LINE_BREAKS)


def dump(value: object) -> str:
    """Compact JSON."""
    return _encode_compactly(value)
