"""Refuses fields by their names: unknown ones, and known ones that ask for something that is not served."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from services.kit.errors import FieldError


def check_names(
    body: Mapping[str, Any],
    supported: Collection[str],
    tolerated: Mapping[str, Callable[[str, object], object]],
    no_op_values: Mapping[str, tuple[object, ...]],
) -> None:
    """Raises FieldError for the first field that is unknown, or known and asking for something that is not served.

    `tolerated` fields have no effect and are only checked for their type; those of `no_op_values` may ask for nothing.
    """
    for name, value in body.items():
        if name in supported:
            continue
        if name in tolerated:
            tolerated[name](name, value)
        elif name in no_op_values:
            check_no_op(name, value, no_op_values[name])
        else:
            raise unknown_field(name)


def check_no_op(param: str, value: object, accepted: tuple[object, ...]) -> None:
    """Raises UNSUPPORTED_FIELD unless `value` is null or one of `accepted`."""
    if value is None or any(_same(value, no_op) for no_op in accepted):
        return
    raise FieldError(param, f"{param} is not supported; leave it out", reason="UNSUPPORTED_FIELD")


def unknown_field(path: str) -> FieldError:
    """The refusal of a field that the API does not have; the path is cut to what fits an error."""
    shown = path if len(path) <= 100 else path[:100] + "..."
    return FieldError(shown, f"unknown field {shown!a}; check its spelling", reason="UNKNOWN_FIELD")


def check_known(path: str, value: Mapping[str, Any], known: frozenset[str]) -> None:
    """Raises UNKNOWN_FIELD for the first key of `value` that is not in `known`."""
    for name in value:
        if name not in known:
            raise unknown_field(f"{path}.{name}")


def _same(value: object, no_op: object) -> bool:
    """Equality that keeps true apart from 1."""
    return value == no_op and isinstance(value, bool) == isinstance(no_op, bool)
