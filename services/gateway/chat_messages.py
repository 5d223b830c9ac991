"""Reads the messages of a chat request: roles, strings or text parts, and nothing that the model would not see."""

from collections.abc import Mapping
from typing import Any

from services.gateway.field_names import check_known, check_no_op
from services.gateway.field_types import array, mapping, string
from services.gateway.request import MAX_MESSAGES, Message
from services.kit.errors import FieldError

# Both names of the role with the highest authority become the word that chat templates know.
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_UNSUPPORTED_ROLES = ("tool", "function")
_UNSUPPORTED_PARTS = ("image_url", "input_audio", "file", "refusal")

_KNOWN = frozenset(("role", "content", "name"))
_KNOWN_ASSISTANT = _KNOWN | {"tool_calls", "function_call", "refusal", "audio"}
_KNOWN_PART = frozenset(("type", "text", "prompt_cache_breakpoint"))
_NO_OPS: Mapping[str, tuple[object, ...]] = {"name": (), "tool_calls": ([],), "function_call": (), "refusal": (), "audio": ()}


def parse_messages(value: object) -> tuple[Message, ...]:
    """The conversation; FieldError names the message, and the part, that is wrong. Text parts are joined by line breaks."""
    messages = array("messages", value)
    if not messages:
        raise FieldError("messages", "messages must hold at least one message")
    if len(messages) > MAX_MESSAGES:
        raise FieldError("messages", f"messages must hold at most {MAX_MESSAGES} messages")
    return tuple(_message(f"messages[{index}]", message) for index, message in enumerate(messages))


def check_role(param: str, role: str) -> str:
    """The template's word for the role."""
    if role in _UNSUPPORTED_ROLES:
        raise FieldError(param, f"role {role} is not supported: tools are not served yet", reason="UNSUPPORTED_FIELD")
    if role not in _ROLES:
        raise FieldError(param, f"{param} must be one of system, developer, user, assistant")
    return _ROLES[role]


def _message(path: str, value: object) -> Message:
    message = mapping(path, value)
    if "role" not in message:
        raise FieldError(f"{path}.role", f"{path}.role is required")
    role = check_role(f"{path}.role", string(f"{path}.role", message["role"]))
    check_known(path, message, _KNOWN_ASSISTANT if role == "assistant" else _KNOWN)
    for name, no_ops in _NO_OPS.items():
        check_no_op(f"{path}.{name}", message.get(name), no_ops)
    return Message(role, _content(f"{path}.content", message))


def _content(path: str, message: Mapping[str, Any]) -> str:
    """Without tool calls, which are refused before, every message needs content."""
    content = message.get("content")
    if content is None:
        raise FieldError(path, f"{path} is required")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise FieldError(path, f"{path} must be a string or an array of text parts")
    if not content:
        raise FieldError(path, f"{path} must hold at least one part")
    return "\n".join(_part(f"{path}[{index}]", part) for index, part in enumerate(content))


def _part(path: str, value: object) -> str:
    part = mapping(path, value)
    kind = string(f"{path}.type", part.get("type"))
    if kind in _UNSUPPORTED_PARTS:
        raise FieldError(path, f"content parts of type {kind} are not supported: the model reads text only", reason="UNSUPPORTED_FIELD")
    if kind != "text":
        raise FieldError(f"{path}.type", f"{path}.type must be text")
    check_known(path, part, _KNOWN_PART)
    check_no_op(f"{path}.prompt_cache_breakpoint", part.get("prompt_cache_breakpoint"), ())
    return string(f"{path}.text", part.get("text"))
