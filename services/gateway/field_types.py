"""Reads single values out of a parsed JSON document; every error names the path of the value."""

from collections.abc import Mapping
from typing import Any

from services.kit.errors import FieldError


def optional_bool(param: str, value: object) -> bool | None:
    """True, false or None."""
    if value is None or isinstance(value, bool):
        return value
    raise _wrong(param, "true or false", value)


def optional_int(param: str, value: object, minimum: int, maximum: int) -> int | None:
    """A whole number in [minimum, maximum] or None; 1.0 and true are not whole numbers."""
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong(param, "a whole number", value)
    if not minimum <= value <= maximum:
        raise FieldError(param, f"{param} must be {_range(minimum, maximum)}")
    return value


def optional_number(param: str, value: object, minimum: float, maximum: float) -> float | None:
    """A number in [minimum, maximum] or None."""
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _wrong(param, "a number", value)
    if not minimum <= value <= maximum:
        raise FieldError(param, f"{param} must be between {minimum:g} and {maximum:g}")
    return float(value)


def optional_string(param: str, value: object) -> str | None:
    """A string or None."""
    if value is None or isinstance(value, str):
        return value
    raise _wrong(param, "a string", value)


def number(param: str, value: object, minimum: float, maximum: float) -> float:
    """A number in [minimum, maximum]."""
    found = optional_number(param, value, minimum, maximum)
    if found is None:
        raise _wrong(param, "a number", value)
    return found


def string(param: str, value: object) -> str:
    """A string."""
    if isinstance(value, str):
        return value
    raise _wrong(param, "a string", value)


def mapping(param: str, value: object) -> Mapping[str, Any]:
    """An object."""
    if isinstance(value, dict):
        return value
    raise _wrong(param, "an object", value)


def array(param: str, value: object) -> list[Any]:
    """An array."""
    if isinstance(value, list):
        return value
    raise _wrong(param, "an array", value)


def string_map(param: str, value: object) -> Mapping[str, str] | None:
    """An object whose values are strings, or None."""
    if value is None:
        return None
    for key, item in mapping(param, value).items():
        if not isinstance(item, str):
            raise FieldError(param, f"every value of {param} must be a string; {key[:64]!a} is not")
    return mapping(param, value)


def _wrong(param: str, wanted: str, value: object) -> FieldError:
    return FieldError(param, f"{param} must be {wanted}, not {_json_type(value)}")


def _json_type(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "an array" if isinstance(value, list) else "an object"


def _range(minimum: int, maximum: int) -> str:
    return f"at least {minimum}" if maximum >= 2**31 - 1 and minimum >= 0 else f"between {minimum} and {maximum}"
