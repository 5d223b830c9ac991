"""Makes ids: of completions for clients, of charges for the ledger, of secrets and their keys."""

import hashlib
import re
import secrets
import uuid

_SECRET = re.compile(r"[A-Za-z0-9._~+/=-]{20,200}")


def completion_id(*, is_chat: bool = True) -> str:
    """Unique and not guessable; what the client sees. Its beginning tells a chat from a text completion, as in the OpenAI API."""
    return ("chatcmpl-" if is_chat else "cmpl-") + secrets.token_hex(16)


def charge_id(unix_ms: int) -> str:
    """A UUIDv7 (RFC 9562): sorts by time, unique without coordination."""
    value = (unix_ms & (2**48 - 1)) << 80 | 0x7 << 76 | secrets.randbits(12) << 64 | 0b10 << 62 | secrets.randbits(62)
    return str(uuid.UUID(int=value))


def attempt_id(charge: str, choice: int, number: int) -> str:
    """Unique per attempt, of which every choice counts its own."""
    return f"{charge}-{choice}-{number}"


def new_secret() -> str:
    """A fresh API key: ifw- and 32 random bytes in url-safe base64."""
    return "ifw-" + secrets.token_urlsafe(32)


def new_key_id() -> str:
    """Id of a key that may be shown."""
    return "key_" + secrets.token_hex(8)


def is_secret(text: str) -> bool:
    """Whether the text can be an API key: one token, neither short nor endless. Operators may have brought keys of another form."""
    return _SECRET.fullmatch(text) is not None


def secret_sha256(secret: str) -> str:
    """What is stored of a key: SHA-256 in hex."""
    return hashlib.sha256(secret.encode("ascii")).hexdigest()
