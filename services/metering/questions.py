"""Checks what callers ask of the ledger before it is asked."""

import base64
import binascii
import datetime

from services.kit.errors import FieldError

MAX_PAGE_SIZE = 1000
DEFAULT_PAGE_SIZE = 100
MAX_IDS = 1000
MAX_UNIX_MS = 2**63 - 1


def day(param: str, text: str) -> str:
    """A day YYYY-MM-DD as the ledger compares it, or empty; raises FieldError."""
    if not text:
        return ""
    try:
        return datetime.date.fromisoformat(text).isoformat()
    except ValueError:
        raise FieldError(param, "must be a day as YYYY-MM-DD in UTC") from None


def page_size(asked: int | None) -> int:
    """Rows of a page, 1 to 1000, default 100; raises FieldError."""
    if asked is None:
        return DEFAULT_PAGE_SIZE
    if not 1 <= asked <= MAX_PAGE_SIZE:
        raise FieldError("page_size", f"must be within 1 to {MAX_PAGE_SIZE}")
    return asked


def ids(asked: tuple[str, ...]) -> tuple[str, ...]:
    """Ids to look for, at most 1000; raises FieldError."""
    if len(asked) > MAX_IDS:
        raise FieldError("ids", f"at most {MAX_IDS} ids may be asked for at once")
    return asked


def page_token(sealed_unix_ms: int, charge_id: str) -> str:
    """The token that goes on after a row."""
    return base64.urlsafe_b64encode(f"{sealed_unix_ms}:{charge_id}".encode()).decode()


def after_token(token: str) -> tuple[int, str] | None:
    """The row that a token goes on after; None for an empty one; raises FieldError."""
    if not token:
        return None
    try:
        sealed, separator, charge_id = base64.urlsafe_b64decode(token.encode("ascii")).decode().partition(":")
        if not separator or not -MAX_UNIX_MS <= int(sealed) <= MAX_UNIX_MS:
            raise ValueError
        return int(sealed), charge_id
    except (ValueError, binascii.Error):
        raise FieldError("page_token", "is not a token of an earlier answer") from None
