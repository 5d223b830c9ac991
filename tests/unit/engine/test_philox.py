"""The random numbers are the published ones, and every coordinate counts."""

import pytest

from services.engine.philox import philox_4x32, uniform


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_matches_the_known_answers_of_its_authors(
    counter: tuple[int, int, int, int], key: tuple[int, int], expected: tuple[int, int, int, int]
) -> None:
    assert philox_4x32(counter, key) == expected


def test_uniform_differs_in_every_coordinate_and_repeats() -> None:
    coordinates = [(seed, choice, position) for seed in (0, 1, 1 << 32, 1 << 63) for choice in (0, 1) for position in (0, 1, 2)]
    numbers = [uniform(*at) for at in coordinates]
    assert len(set(numbers)) == len(coordinates)
    assert numbers == [uniform(*at) for at in coordinates]
    assert all(0 <= number < 1 for number in numbers)


def test_uniform_negative_seed_is_its_twos_complement() -> None:
    assert uniform(-1, 0, 7) == uniform((1 << 64) - 1, 0, 7)


def test_uniform_is_even_over_ten_bins() -> None:
    """Chi-square over 10 bins with 9 degrees of freedom: 27.9 is the 0.1 % point."""
    counts = [0] * 10
    for position in range(5000):
        counts[int(uniform(42, 0, position) * 10)] += 1
    assert sum((count - 500) ** 2 / 500 for count in counts) < 27.9
