"""Log lines are JSON, carry the request's context, and never the text of an exception."""

import json
import logging
import sys

from services.kit import logs


def line(message: str, exc_info: object = None) -> dict[str, object]:
    record = logging.LogRecord("services.x", logging.INFO, "x.py", 1, message, None, exc_info)  # type: ignore[arg-type]
    parsed: dict[str, object] = json.loads(logs.JsonFormatter("router").format(record))
    return parsed


def test_format_context_is_in_the_line_and_ends_with_the_block() -> None:
    with logs.context(request="r1"), logs.context(tenant="acme"):
        inside = line("granted")
    assert (inside["request"], inside["tenant"], inside["service"]) == ("r1", "acme", "router")
    assert "request" not in line("later")


def test_format_exception_names_type_and_place_but_not_its_text() -> None:
    try:
        raise ValueError("prompt: my diary")
    except ValueError:
        parsed = line("failed", sys.exc_info())
    assert parsed["exception"] == "ValueError"
    assert "diary" not in json.dumps(parsed)
    assert "test_logs.py" in json.dumps(parsed["frames"])
