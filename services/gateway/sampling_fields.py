"""Reads sampling parameters: the same names, ranges and defaults on every surface."""

import re
from collections.abc import Mapping

from services.gateway.field_types import mapping, number, optional_int, optional_number
from services.gateway.request import MAX_LOGIT_BIASES, SEED_MAX, SEED_MIN, SamplingParams, fresh_seed
from services.kit.errors import FieldError

SAMPLING_FIELDS = frozenset(
    (
        "temperature",
        "top_p",
        "seed",
        "top_k",
        "min_p",
        "repetition_penalty",
        "frequency_penalty",
        "presence_penalty",
        "logit_bias",
    )
)

_MAX_TOP_K = 2**31 - 1
_MAX_BIAS = 100.0
_TOKEN_ID = re.compile(r"0|[1-9][0-9]{0,9}")


def parse_sampling(fields: Mapping[str, object], prefix: str = "") -> SamplingParams:
    """Checked sampling parameters with the documented defaults; a missing seed becomes a fresh one. Errors put `prefix` before names."""

    def given(name: str, minimum: float, maximum: float, default: float) -> float:
        value = optional_number(prefix + name, fields.get(name), minimum, maximum)
        return default if value is None else value

    seed = optional_int(f"{prefix}seed", fields.get("seed"), SEED_MIN, SEED_MAX)
    return SamplingParams(
        temperature=given("temperature", 0, 2, 1.0),
        top_p=_above_zero(f"{prefix}top_p", given("top_p", 0, 1, 1.0), "use temperature 0 for greedy answers"),
        seed=fresh_seed() if seed is None else seed,
        top_k=max(0, optional_int(f"{prefix}top_k", fields.get("top_k"), -1, _MAX_TOP_K) or 0),
        min_p=given("min_p", 0, 1, 0.0),
        repetition_penalty=_above_zero(f"{prefix}repetition_penalty", given("repetition_penalty", 0, 2, 1.0), "1 is off"),
        frequency_penalty=given("frequency_penalty", -2, 2, 0.0),
        presence_penalty=given("presence_penalty", -2, 2, 0.0),
        logit_bias=_logit_bias(f"{prefix}logit_bias", fields.get("logit_bias")),
    )


def _above_zero(param: str, value: float, advice: str) -> float:
    if value == 0:
        raise FieldError(param, f"{param} must be above 0; {advice}")
    return value


def _logit_bias(param: str, value: object) -> tuple[tuple[int, float], ...]:
    """Pairs of token id and bias, from an object whose keys are token ids in decimal; whether the model has them is found out later."""
    if value is None:
        return ()
    biases = mapping(param, value)
    if len(biases) > MAX_LOGIT_BIASES:
        raise FieldError(param, f"{param} must hold at most {MAX_LOGIT_BIASES} tokens")
    for token_id in biases:
        if _TOKEN_ID.fullmatch(token_id) is None:
            raise FieldError(param, f"every key of {param} must be a token id in decimal; {token_id[:64]!a} is none")
    return tuple((int(token_id), number(param, bias, -_MAX_BIAS, _MAX_BIAS)) for token_id, bias in biases.items())
