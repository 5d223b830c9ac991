"""Sampling follows the distribution it was asked for and never looks at other rows."""

import math
from collections import Counter
from collections.abc import Sequence

import pytest
import torch

from services.engine.runner import SamplingParams, SequenceSlice
from services.engine.torch_runner.sampling import Draw, sample

_VOCAB = 3000


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def logits_of(probabilities: Sequence[float]) -> torch.Tensor:
    return torch.tensor(probabilities, dtype=torch.float32).log()


def random_logits(rows: int, spread: float = 3.0, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, _VOCAB, generator=torch.Generator().manual_seed(seed)) * spread


def counts(logits: torch.Tensor, params: SamplingParams, number: int) -> Counter[int]:
    """Tokens of `number` evenly spread draws: each token gets its exact share, give or take one."""
    draws = [Draw(params, (index + 0.5) / number) for index in range(number)]
    return Counter(token for token in sample(logits.expand(number, -1), draws) if token is not None)


def test_temperature_zero_takes_the_largest_and_the_lowest_id_of_a_tie() -> None:
    logits = torch.tensor([[0.0, 3.0, 3.0, 1.0], [5.0, 3.0, 3.0, 5.0]])
    assert sample(logits, [Draw(SamplingParams(temperature=0), 0.99)] * 2) == [1, 0]


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
    ],
)
def test_shares_are_those_of_the_truncated_distribution(params: SamplingParams, expected: dict[int, int]) -> None:
    found = counts(logits_of([0.1, 0.3, 0.4, 0.2]), params, 1000)
    assert found.keys() == expected.keys()
    assert all(abs(found[token] - share) <= 1 for token, share in expected.items())


@pytest.mark.parametrize("spread", [0.05, 0.5, 3.0])
@pytest.mark.parametrize("top_p", [0.5, 0.9, 0.999])
def test_top_p_beyond_the_first_candidates_matches_a_full_sort(spread: float, top_p: float) -> None:
    """Flat rows need more than the first candidates, up to the whole vocabulary."""
    logits = random_logits(1, spread)
    weights = torch.softmax(logits[0].double(), dim=0)
    order = sorted(range(_VOCAB), key=lambda token: (-weights[token].item(), token))
    kept, mass = [], 0.0
    for token in order:
        kept.append(token)
        mass += weights[token].item()
        if mass >= top_p:
            break
    number = 400
    draws = [Draw(SamplingParams(top_p=top_p), (index + 0.5) / number) for index in range(number)]
    cumulative = torch.tensor([weights[token].item() for token in kept], dtype=torch.float64).cumsum(0)
    wanted = [kept[int(torch.searchsorted(cumulative, draw.uniform * mass, right=True))] for draw in draws]
    assert sample(logits.expand(number, -1), draws) == wanted


def test_top_p_met_exactly_keeps_no_further_token_and_ties_go_by_id() -> None:
    assert counts(torch.zeros(4), SamplingParams(top_p=0.5), 100) == {0: 50, 1: 50}


def test_row_is_independent_of_its_batch_mates() -> None:
    logits = random_logits(12, spread=1.0)
    kinds = [
        SamplingParams(temperature=0),
        SamplingParams(),
        SamplingParams(top_p=0.3),
        SamplingParams(top_p=0.99),
        SamplingParams(top_k=5),
        SamplingParams(top_k=100, top_p=0.9),
        SamplingParams(temperature=1.7, top_p=0.999),
        SamplingParams(temperature=0.01),
    ]
    draws = [Draw(kinds[row % len(kinds)], (row + 0.5) / 12) for row in range(12)]
    together = sample(logits, draws)
    assert together == [sample(logits[row : row + 1], [draws[row]])[0] for row in range(12)]
    assert list(reversed(together)) == sample(logits.flip(0), list(reversed(draws)))


def test_equal_seed_choice_and_position_draw_equal_tokens_and_each_one_matters() -> None:
    logits = random_logits(1, spread=0.1)

    def token(seed: int, choice: int, position: int) -> int | None:
        part = SequenceSlice(1, [0], 0, [0], SamplingParams(seed=seed), samples=True, choice=choice, output_position=position)
        return sample(logits, [Draw.of(part)])[0]

    assert token(7, 0, 3) == token(7, 0, 3)
    assert len({token(7, 0, 3), token(8, 0, 3), token(7, 1, 3), token(7, 0, 4)}) == 4


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_row_that_is_not_finite_gives_none_and_spares_the_others(bad: float) -> None:
    logits = random_logits(3)
    logits[1, 17] = bad
    draws = [Draw(SamplingParams(temperature=0 if row == 2 else 1), 0.5) for row in range(3)]
    tokens = sample(logits, draws)
    assert tokens[1] is None
    assert [tokens[0], tokens[2]] == sample(logits[[0, 2]], [draws[0], draws[2]])


@pytest.mark.parametrize("params", [SamplingParams(), SamplingParams(top_p=0.9), SamplingParams(top_k=3)])
@pytest.mark.parametrize("number", [0.0, 1 - 2**-53])
def test_ends_of_the_random_range_give_tokens_of_positive_probability(params: SamplingParams, number: float) -> None:
    logits = logits_of([0.0, 0.5, 0.0, 0.5, 0.0]).clamp(min=-1e4)
    token = sample(logits[None], [Draw(params, number)])[0]
    assert token == (1 if number == 0 else 3)


@pytest.mark.parametrize("temperature", [1e-300, 1e-6, 1e6])
def test_extreme_temperatures_are_finite(temperature: float) -> None:
    found = counts(logits_of([0.1, 0.3, 0.4, 0.2]), SamplingParams(temperature=temperature), 100)
    assert found == ({2: 100} if temperature < 1 else {0: 25, 1: 25, 2: 25, 3: 25})


def test_logits_far_from_zero_do_not_overflow() -> None:
    assert counts(torch.tensor([-3e38, 1e30, 1e30]), SamplingParams(top_p=0.99), 10) == {1: 5, 2: 5}
