"""Sampling follows the distribution it was asked for, whatever candidates it looks at first."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.engine.runner import SamplingParams
from services.engine.sampling.draw import draw
from services.engine.sampling.heaviest import Row, heaviest

_VOCAB = 3000


def logits_of(probabilities: Sequence[float]) -> Row:
    return np.log(np.maximum(np.array(probabilities, dtype=np.float32), np.float32(1e-38)))


def random_logits(spread: float = 3.0, seed: int = 0, size: int = _VOCAB) -> Row:
    return (np.random.default_rng(seed).standard_normal(size) * spread).astype(np.float32)


def counts(logits: Row, params: SamplingParams, number: int) -> Counter[int]:
    """Tokens of `number` evenly spread draws: each token gets its exact share, give or take one."""
    return Counter(draw(logits, params, (index + 0.5) / number) for index in range(number))


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (SamplingParams(), {0: 100, 1: 300, 2: 400, 3: 200}),
        (SamplingParams(temperature=0.5), {0: 33, 1: 300, 2: 533, 3: 133}),
        (SamplingParams(top_k=2), {1: 429, 2: 571}),
        (SamplingParams(top_k=1), {2: 1000}),
        (SamplingParams(top_k=99), {0: 100, 1: 300, 2: 400, 3: 200}),
        (SamplingParams(top_p=0.4), {2: 1000}),
        (SamplingParams(top_p=0.41), {1: 429, 2: 571}),
        (SamplingParams(top_p=0.69), {1: 429, 2: 571}),
        (SamplingParams(top_p=0.71), {1: 333, 2: 444, 3: 222}),
        (SamplingParams(top_p=1e-9), {2: 1000}),
        (SamplingParams(top_k=3, top_p=0.75), {1: 429, 2: 571}),
        (SamplingParams(top_k=3, top_p=0.78), {1: 333, 2: 444, 3: 222}),
        (SamplingParams(min_p=0.2), {0: 100, 1: 300, 2: 400, 3: 200}),
        (SamplingParams(min_p=0.3), {1: 333, 2: 444, 3: 222}),
        (SamplingParams(min_p=0.6), {1: 429, 2: 571}),
        (SamplingParams(min_p=1), {2: 1000}),
        (SamplingParams(min_p=0.3, temperature=2), {0: 163, 1: 282, 2: 325, 3: 230}),
        (SamplingParams(min_p=0.6, top_k=3), {1: 429, 2: 571}),
        (SamplingParams(min_p=0.3, top_p=0.77), {1: 429, 2: 571}),
        (SamplingParams(min_p=0.3, top_p=0.78), {1: 333, 2: 444, 3: 222}),
        (SamplingParams(min_p=0.3, top_k=4, top_p=0.77), {1: 429, 2: 571}),
    ],
)
def test_draw_shares_are_those_of_the_truncated_distribution(params: SamplingParams, expected: dict[int, int]) -> None:
    found = counts(logits_of([0.1, 0.3, 0.4, 0.2]), params, 1000)
    assert found.keys() == expected.keys()
    assert all(abs(found[token] - share) <= 1 for token, share in expected.items())


@pytest.mark.parametrize("spread", [0.05, 0.5, 3.0])
@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(top_p=0.5),
        SamplingParams(top_p=0.9),
        SamplingParams(top_p=0.999),
        SamplingParams(top_p=1 - 1e-16),
        SamplingParams(top_k=7),
        SamplingParams(top_k=700, top_p=0.9),
        SamplingParams(min_p=0.05),
        SamplingParams(min_p=0.05, top_p=0.8, top_k=2000, temperature=1.4),
    ],
)
def test_draw_matches_a_full_sort(spread: float, params: SamplingParams) -> None:
    """Flat rows need more than the first candidates, up to the whole vocabulary."""
    logits = random_logits(spread)
    weights = np.exp((logits.astype(np.float64) - logits.max()) / params.temperature)
    order = sorted(range(_VOCAB), key=lambda token: (-weights[token], token))[: params.top_k or _VOCAB]
    order = [token for token in order if weights[token] >= params.min_p]
    wanted, mass, kept = params.top_p * sum(weights[token] for token in order), 0.0, []
    for token in order:
        kept.append(token)
        mass += weights[token]
        if mass >= wanted:
            break
    kept.sort()
    cumulative = np.cumsum([weights[token] for token in kept])
    for index in range(200):
        number = (index + 0.5) / 200
        assert draw(logits, params, number) == kept[int(np.searchsorted(cumulative, number * cumulative[-1], side="right"))]


def test_draw_from_everything_goes_by_id_in_blocks() -> None:
    logits = random_logits(size=1000)
    weights = np.exp(logits.astype(np.float64))
    cumulative = weights.cumsum()
    for index in range(2000):
        number = (index + 0.5) / 2000
        assert draw(logits, SamplingParams(), number) == np.searchsorted(cumulative, number * cumulative[-1], side="right")


def test_draw_top_p_met_exactly_keeps_no_further_token_and_ties_go_by_id() -> None:
    assert counts(np.zeros(4, dtype=np.float32), SamplingParams(top_p=0.5), 100) == {0: 50, 1: 50}


_KINDS = [
    SamplingParams(),
    SamplingParams(top_p=0.9),
    SamplingParams(top_k=3),
    SamplingParams(min_p=0.1),
    SamplingParams(min_p=0.1, top_p=0.9),
]


@pytest.mark.parametrize("params", _KINDS)
@pytest.mark.parametrize("number", [0.0, 1 - 2**-53])
def test_draw_ends_of_the_random_range_give_tokens_of_positive_probability(params: SamplingParams, number: float) -> None:
    logits = np.full(200, -np.inf, dtype=np.float32)
    logits[[70, 150]] = 1.0
    assert draw(logits, params, number) == (70 if number == 0 else 150)


@pytest.mark.parametrize("params", [*_KINDS, SamplingParams(top_k=5), SamplingParams(temperature=0.0001)])
def test_draw_never_gives_a_token_at_minus_infinity(params: SamplingParams) -> None:
    logits = np.array([5, -np.inf, 4, -np.inf, -np.inf], dtype=np.float32)
    assert counts(logits, params, 50).keys() <= {0, 2}


@pytest.mark.parametrize("temperature", [1e-300, 1e-6, 1e6])
def test_draw_extreme_temperatures_are_finite(temperature: float) -> None:
    found = counts(logits_of([0.1, 0.3, 0.4, 0.2]), SamplingParams(temperature=temperature), 100)
    assert found == ({2: 100} if temperature < 1 else {0: 25, 1: 25, 2: 25, 3: 25})


def test_draw_logits_far_from_zero_do_not_overflow() -> None:
    assert counts(np.array([-3e38, 1e30, 1e30], dtype=np.float32), SamplingParams(top_p=0.99), 10) == {1: 5, 2: 5}


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=400), st.integers(1, 400))
def test_heaviest_is_the_head_of_a_stable_sort(values: list[int], count: int) -> None:
    row = np.array(values, dtype=np.float32)
    assert heaviest(row, count).tolist() == sorted(range(len(values)), key=lambda token: (-values[token], token))[:count]


@pytest.mark.parametrize("size", [640, 49152, 49211])
@pytest.mark.parametrize("count", [1, 5, 20, 400, 3000])
def test_heaviest_of_a_wide_row_is_the_head_of_a_stable_sort(size: int, count: int) -> None:
    row = random_logits(seed=count, size=size)
    row[size // 3 : size // 2] = row.max()
    assert heaviest(row, count).tolist() == np.argsort(-row, kind="stable")[:count].tolist()
