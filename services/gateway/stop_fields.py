"""Reads what ends an answer: stop strings, stop tokens and the least number of tokens before they count."""

from services.gateway.field_types import array, optional_int
from services.gateway.request import MAX_STOP_CHARS, MAX_STOP_TOKENS, MAX_STOPS
from services.kit.errors import FieldError

_MAX_INT = 2**31 - 1


def parse_stop(param: str, value: object) -> tuple[str, ...]:
    """Stop strings: null, one string, or an array of at most MAX_STOPS; none empty or longer than MAX_STOP_CHARS."""
    if value is None:
        return ()
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list):
        raise FieldError(param, f"{param} must be a string or an array of strings")
    if len(stops) > MAX_STOPS:
        raise FieldError(param, f"{param} must hold at most {MAX_STOPS} strings")
    for stop in stops:
        if not isinstance(stop, str) or not stop:
            raise FieldError(param, f"{param} must hold strings that are not empty")
        if len(stop) > MAX_STOP_CHARS:
            raise FieldError(param, f"{param} must hold strings of at most {MAX_STOP_CHARS} characters")
    return tuple(stops)


def parse_stop_token_ids(param: str, value: object) -> tuple[int, ...]:
    """Token ids: null or an array of at most MAX_STOP_TOKENS; whether the model has them is found out later."""
    if value is None:
        return ()
    token_ids = array(param, value)
    if len(token_ids) > MAX_STOP_TOKENS:
        raise FieldError(param, f"{param} must hold at most {MAX_STOP_TOKENS} token ids")
    if any(type(token_id) is not int or not 0 <= token_id <= _MAX_INT for token_id in token_ids):
        raise FieldError(param, f"{param} must hold token ids, which are whole numbers from 0")
    return tuple(token_ids)


def parse_min_tokens(param: str, value: object, max_output_tokens: int | None) -> int:
    """The least number of tokens; 0 when none is given."""
    least = optional_int(param, value, 0, _MAX_INT) or 0
    if max_output_tokens is not None and least > max_output_tokens:
        raise FieldError(param, f"{param} must not be above the {max_output_tokens} tokens that the answer may have")
    return least
