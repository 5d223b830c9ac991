"""Turns a float matrix into the blocks of kernels/cpu/quantised.h.

Without loss when its groups are values of Q4_1 or Q8_0, else rounded to eight bits.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.engine.cpu_runner.native import GROUP, LANES, Floats, Format, PackedMatrix

_VALUES_AT_ONCE = 1 << 20
_Bytes = NDArray[np.uint8]
_Halves = NDArray[np.float16]


@dataclass(frozen=True, slots=True)
class _Groups:
    """Groups [outputs, groups] of 32 inputs, and whether all values came back bit for bit."""

    numbers: _Bytes
    """[outputs, groups, 32]."""
    factors: tuple[_Halves, ...]
    """[outputs, groups] each."""
    exact: bool


def pack(weight: Floats) -> PackedMatrix:
    """Pack `weight` [outputs, inputs] float32: as Q4 when its values are Q4_1's, else as Q8 (rounded unless they are Q8_0's).

    Inputs are a multiple of 32; outputs that fill up the last block of 16 give zero.
    """
    blocks, exact = _blocks(weight, Format.Q4)
    if exact:
        return PackedMatrix(blocks, Format.Q4, exact)
    blocks, exact = _blocks(weight, Format.Q8)
    return PackedMatrix(blocks, Format.Q8, exact)


def _blocks(weight: Floats, format: Format) -> tuple[_Bytes, bool]:
    """The blocks and whether no value changed; of Q4 only as many blocks as had no changed value."""
    outputs, inputs = weight.shape
    group_up, place, block_bytes = _FORMATS[format]
    blocks = np.empty((-(-outputs // LANES), inputs // GROUP, block_bytes), dtype=np.uint8)
    step = max(1, _VALUES_AT_ONCE // (LANES * inputs))
    exact = True
    for first in range(0, len(blocks), step):
        part = blocks[first : first + step]
        rows = np.zeros((len(part) * LANES, inputs), dtype=np.float32)
        given = weight[first * LANES : (first + step) * LANES]
        rows[: len(given)] = given
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            groups = group_up(rows.reshape(len(rows), -1, GROUP))
        exact = exact and groups.exact
        if not exact and format is Format.Q4:
            return blocks[:first].reshape(-1), False
        numbers = place(groups.numbers.reshape(len(part), LANES, -1, GROUP))
        halves = [factor.reshape(len(part), LANES, -1).transpose(0, 2, 1) for factor in groups.factors]
        part[:] = np.concatenate([numbers, *(np.ascontiguousarray(each).view(np.uint8) for each in halves)], axis=2)
    return blocks.reshape(-1), exact


def _q4_groups(values: Floats) -> _Groups:
    """Q4_1's smallest and largest value of a group are its nibbles 0 and 15."""
    low, high = values.min(axis=2), values.max(axis=2)
    minimum, scale = low.astype(np.float16), ((high - low) / np.float32(15)).astype(np.float16)
    start, step = minimum.astype(np.float32)[..., None], scale.astype(np.float32)[..., None]
    nibbles = np.minimum(np.fmax(np.rint((values - start) * _inverse(step)), 0), 15)
    return _Groups(nibbles.astype(np.uint8), (scale, minimum), bool((step * nibbles + start == values).all()))


def _q8_groups(values: Floats) -> _Groups:
    """Bytes are kept plus 128. A group that is not finite gets a scale that is not a number."""
    scale = (np.abs(values).max(axis=2) / np.float32(127)).astype(np.float16)
    step = scale.astype(np.float32)[..., None]
    numbers = np.minimum(np.fmax(np.rint(values * _inverse(step)), -127), 127)
    return _Groups((numbers + 128).astype(np.uint8), (scale,), bool((step * numbers == values).all()))


def _inverse(step: Floats) -> Floats:
    return np.where(step > 0, 1 / step, np.float32(0))


def _place_nibbles(numbers: _Bytes) -> _Bytes:
    """[blocks, 16, groups, 32] as bytes [blocks, groups, 256]: in turns of four inputs, two neighbouring turns in a byte."""
    turns = numbers.reshape(*numbers.shape[:3], 4, 2, 4)
    return _by_output(np.bitwise_or(turns[..., 0, :], np.left_shift(turns[..., 1, :], 4), dtype=np.uint8))


def _place_bytes(numbers: _Bytes) -> _Bytes:
    """[blocks, 16, groups, 32] as bytes [blocks, groups, 512]."""
    return _by_output(numbers.reshape(*numbers.shape[:3], 8, 4))


def _by_output(turns: _Bytes) -> _Bytes:
    """[blocks, 16, groups, turns, 4] as [blocks, groups, turns * 16 * 4]."""
    ordered = turns.transpose(0, 2, 3, 1, 4)
    return np.ascontiguousarray(ordered).reshape(*ordered.shape[:2], -1)


_FORMATS: dict[Format, tuple[Callable[[Floats], _Groups], Callable[[_Bytes], _Bytes], int]] = {
    Format.Q4: (_q4_groups, _place_nibbles, 4 * 64 + 2 * 2 * LANES),
    Format.Q8: (_q8_groups, _place_bytes, 8 * 64 + 2 * LANES),
}
