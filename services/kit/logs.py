"""JSON-lines logging with the request's context in every line; never a key, a prompt or an answer."""

import contextvars
import json
import logging
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

_context: contextvars.ContextVar[Mapping[str, str] | None] = contextvars.ContextVar("log_context", default=None)


@contextmanager
def context(**fields: str) -> Iterator[None]:
    """Adds fields such as request, tenant, model to every line logged inside the block."""
    token = _context.set({**(_context.get() or {}), **fields})
    try:
        yield
    finally:
        _context.reset(token)


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, service, logger, message, context, and `extra={"fields": {...}}`."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter. Of an exception only type and frames are written: its text may quote user input."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, object] = {
            "time": f"{stamp}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "service": self._service,
            "logger": record.name,
            "message": record.getMessage(),
            **(_context.get() or {}),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            frames = traceback.extract_tb(record.exc_info[2])[-8:]
            line["exception"] = record.exc_info[0].__name__
            line["frames"] = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
        return json.dumps(line, default=str)


def set_up(service: str, level: str = "INFO") -> None:
    """Sends all logging of the process to stderr as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(service))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("kafka").setLevel(logging.WARNING)
    logging.captureWarnings(True)
