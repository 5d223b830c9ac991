"""Draws one token from one row of logits: the inverse of the distribution function, at a given number in [0, 1).

Order of the limits: `top_k` and `min_p` first, then `top_p` of the mass that they left. Where a limit is set only candidates are looked at:
all tokens that weigh less than (1 - top_p) / vocabulary of the whole are together less than what top-p leaves out.
"""

import numpy as np
from numpy.typing import NDArray

from services.engine.runner import SamplingParams
from services.engine.sampling.heaviest import Ids, Row, heaviest

Weights = NDArray[np.float64]
"""Probabilities up to a factor; float64, so that sums over a vocabulary are exact enough."""

_MIN_TEMPERATURE = 1e-5
"""Below it float32 cannot tell the distribution from greedy."""
_FEW = 1024
_BLOCK = 64


def draw(row: Row, params: SamplingParams, number: float) -> int:
    """The token at which the cumulative probability of the kept tokens, in the order of their ids, passes `number` times their mass.

    `row` is finite, but for tokens at minus infinity, which are never drawn.
    """
    if 0 < params.top_k < len(row):
        ids = np.sort(heaviest(row, params.top_k))
        weights = _weights(row[ids], params.temperature)
        ids, weights = ids[weights >= params.min_p], weights[weights >= params.min_p]
        return _draw_heaviest(ids, weights, params.top_p * float(weights.sum()), number)
    weights = _weights(row, params.temperature)
    if params.min_p == 0 and params.top_p >= 1:
        return _draw_any(weights, number)
    ids, wanted = _candidates(weights, params)
    return _draw_heaviest(ids, weights[ids], wanted, number)


def _weights(row: Row, temperature: float) -> Weights:
    """exp((logit - largest) / temperature)"""
    wide = row.astype(np.float64)
    wide -= wide.max()
    wide /= max(temperature, _MIN_TEMPERATURE)
    return np.exp(wide, out=wide)


def _candidates(weights: Weights, params: SamplingParams) -> tuple[Ids, float]:
    """Ids, ascending, that hold all tokens which top-p may keep, and the mass that it wants."""
    if params.min_p > 0:
        ids = np.flatnonzero(weights >= params.min_p)
        return ids, params.top_p * float(weights[ids].sum())
    total = float(weights.sum())
    wanted = params.top_p * total
    ids = np.flatnonzero(weights >= total / _FEW)
    if float(weights[ids].sum()) < wanted:
        ids = np.flatnonzero(weights >= (1 - params.top_p) * total / len(weights))
    return ids, wanted


def _draw_heaviest(ids: Ids, weights: Weights, wanted: float, number: float) -> int:
    """Draw from the fewest of the tokens that hold the mass `wanted`: the heaviest, of equal ones those of the lowest ids.

    Only the weights are sorted, to find the least that is kept, which is many times as fast as to sort tokens by them.
    """
    descending = np.sort(weights)[::-1]
    last = min(int(np.searchsorted(descending.cumsum(), wanted)), len(descending) - 1)
    kept = weights > descending[last]
    kept[np.flatnonzero(weights == descending[last])[: last + 1 - int(np.count_nonzero(kept))]] = True
    return int(ids[kept][_passes(weights[kept].cumsum(), number)])


def _draw_any(weights: Weights, number: float) -> int:
    """Draw from all tokens in the order of their ids: first a block, then a token of it."""
    cumulative = np.add.reduceat(weights, np.arange(0, len(weights), _BLOCK)).cumsum()
    block = _passes(cumulative, number)
    begin = block * _BLOCK
    inside = weights[begin : begin + _BLOCK]
    before = float(cumulative[block - 1]) if block else 0.0
    at = int(np.searchsorted(inside.cumsum() + before, number * float(cumulative[-1]), side="right"))
    return begin + min(at, int(np.flatnonzero(inside)[-1]))  # The two sums may differ in last bits at a block's end.


def _passes(cumulative: Weights, number: float) -> int:
    """The first entry above `number` times the last one; an entry that adds nothing is never it."""
    total = float(cumulative[-1])
    return int(np.searchsorted(cumulative, min(number * total, np.nextafter(total, 0.0)), side="right"))
