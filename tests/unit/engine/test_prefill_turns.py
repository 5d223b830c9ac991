"""Who gets how much of a step, as a table."""

import pytest

from services.engine.prefill_turns import Want, prefill_turns


def shares(wants: list[Want], budget: int) -> dict[int, int]:
    """What everybody gets, in order of the turns."""
    given: dict[int, int] = {}
    for index, most in prefill_turns(wants, budget):
        count = min(budget, most, wants[index].num_tokens - given.get(index, 0))
        given[index] = given.get(index, 0) + count
        budget -= count
    return {index: count for index, count in given.items() if count}


@pytest.mark.parametrize(
    ("case", "wants", "expected"),
    [
        ("nobody", [], {}),
        ("alone", [(0, 500)], {0: 64}),
        ("short", [(0, 5)], {0: 5}),
        ("equal ones end one after the other", [(0, 100), (0, 100)], {0: 64}),
        ("who has begun ends", [(0, 36), (0, 100)], {0: 36, 1: 28}),
        ("short behind long", [(0, 4000), (0, 40)], {0: 24, 1: 40}),
        ("many short ones leave the oldest its share", [(0, 4000), (0, 40), (0, 40)], {0: 16, 1: 40, 2: 8}),
        ("least left first", [(0, 4000), (0, 50), (0, 20)], {0: 16, 2: 20, 1: 28}),
        ("higher class first", [(0, 30), (0, 20), (1, 60)], {0: 16, 2: 48}),
        ("low class has aged to the front", [(-1, 4000), (0, 4000)], {0: 16, 1: 48}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_prefill_turns(case: str, wants: list[tuple[int, int]], expected: dict[int, int]) -> None:
    assert shares([Want(*want) for want in wants], 64) == expected


def test_the_smallest_budget_goes_to_somebody() -> None:
    assert shares([Want(0, 9), Want(0, 3)], 1) == {0: 1}
