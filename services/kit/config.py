"""Configuration from the environment: one frozen dataclass per service, checked completely before a socket opens."""

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from services.kit.errors import ConfigError

T = TypeVar("T")


def load(cls: type[T], prefix: str, environ: Mapping[str, str]) -> T:
    """Builds the dataclass `cls` from variables named `<prefix><FIELD>`, for example INFERWAY_GATEWAY_PORT.

    Field types may be str, int, float, bool (true/false), tuple[str, ...] (comma separated) and any of them `| None`.
    An empty value counts as unset. `cls.__post_init__` may raise ValueError for a value out of range.
    Raises ConfigError that lists every missing, malformed and unknown variable.
    """
    hints = typing.get_type_hints(cls)
    fields = {prefix + field.name.upper(): field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    problems = [f"{name}: unknown setting; known are {', '.join(sorted(fields))}" for name in _unknown(environ, prefix, fields)]
    values: dict[str, Any] = {}
    for name, field in fields.items():
        text = environ.get(name, "")
        if text == "":
            if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
                problems.append(f"{name}: is required")
            continue
        try:
            values[field.name] = _parser(hints[field.name])(text)
        except ValueError as error:
            problems.append(f"{name}: {error}")
    if problems:
        raise ConfigError("\n".join(sorted(problems)))
    try:
        return cls(**values)
    except ValueError as error:
        raise ConfigError(f"{prefix}*: {error}") from error


def require(condition: bool, message: str) -> None:
    """Raises ValueError(message) unless the condition holds; for __post_init__ of config classes."""
    if not condition:
        raise ValueError(message)


def _unknown(environ: Mapping[str, str], prefix: str, fields: Mapping[str, object]) -> list[str]:
    return [name for name in environ if name.startswith(prefix) and name not in fields]


def _parser(hint: Any) -> Callable[[str], Any]:
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        (hint,) = [arg for arg in typing.get_args(hint) if arg is not types.NoneType]
    if typing.get_origin(hint) is tuple:
        return _parse_list
    parser = _PARSERS.get(hint)
    if parser is None:
        raise TypeError(f"no parser for a setting of type {hint!r}")
    return parser


def _parse_bool(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.lower() == "true"


def _parse_int(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("must be a whole number") from None


def _parse_float(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ValueError("must be a number") from None
    if number != number or number in (float("inf"), float("-inf")):
        raise ValueError("must be a finite number")
    return number


def _parse_list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


_PARSERS: dict[Any, Callable[[str], Any]] = {str: str, int: _parse_int, float: _parse_float, bool: _parse_bool}
