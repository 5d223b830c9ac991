"""Chooses tokens from logits, row by row: a row's token depends on its own logits, parameters and random number, never on other rows.

Candidates first: nearly always a few dozen tokens hold the mass that top-p asks for, so only they are sorted; a row whose candidates do not
hold enough gets more, in the end the whole vocabulary. The token is the one at which the cumulative probability of the kept tokens passes
u times their mass (inverse of the distribution function), with u from `philox.uniform(seed, choice, position)`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from services.engine.philox import uniform
from services.engine.runner import SamplingParams, SequenceSlice

_CANDIDATES = (64, 1024)
_EVERY_TOKEN = 0
"""Stands for a row that keeps the whole vocabulary, which needs no order."""
_MIN_TEMPERATURE = 1e-5
"""Below it float32 cannot tell the distribution from greedy."""


@dataclass(frozen=True, slots=True)
class Draw:
    """One row to choose from: how, and the number in [0, 1) that decides."""

    params: SamplingParams
    uniform: float

    @classmethod
    def of(cls, part: SequenceSlice) -> "Draw":
        greedy = part.sampling.temperature == 0
        return cls(part.sampling, 0.0 if greedy else uniform(part.sampling.seed, part.choice, part.output_position))


def sample(logits: Tensor, draws: Sequence[Draw]) -> list[int | None]:
    """A token id per row of `logits` [len(draws), vocab] float32; None where the logits are not all finite."""
    finite = torch.isfinite(logits).all(dim=1).tolist()
    tokens: list[int | None] = [None] * len(draws)
    greedy = [row for row, draw in enumerate(draws) if finite[row] and draw.params.temperature == 0]
    if greedy:
        for row, token in zip(greedy, _rows(logits, greedy).argmax(dim=1).tolist(), strict=True):
            tokens[row] = token
    random = [row for row, draw in enumerate(draws) if finite[row] and draw.params.temperature != 0]
    if random:
        weights = _weights(_rows(logits, random), [draws[row].params.temperature for row in random])
        for row, token in zip(random, _draw(weights, [draws[row] for row in random]), strict=True):
            tokens[row] = token
    return tokens


def _rows(tensor: Tensor, rows: list[int]) -> Tensor:
    return tensor if len(rows) == len(tensor) else tensor[rows]


def _weights(logits: Tensor, temperatures: list[float]) -> Tensor:
    """Probabilities up to a factor: exp((logit - largest) / temperature), in float64 so that sums of a vocabulary are exact enough."""
    scale = torch.tensor([max(value, _MIN_TEMPERATURE) for value in temperatures], dtype=torch.float64, device=logits.device)
    wide = logits.double()
    return ((wide - wide.amax(dim=1, keepdim=True)) / scale[:, None]).exp_()


def _draw(weights: Tensor, draws: list[Draw]) -> list[int]:
    """One token per row; rows are grouped by the number of candidates they start with, which depends on the row alone."""
    vocab = weights.shape[1]
    tokens = [0] * len(draws)
    pending: dict[int, list[int]] = {}
    for row, draw in enumerate(draws):
        pending.setdefault(_first_count(draw.params, vocab), []).append(row)
    while pending:
        count = min(pending)
        rows = pending.pop(count)
        choose = _draw_from_all if count == _EVERY_TOKEN else _draw_among
        chosen = choose(_rows(weights, rows), [draws[row] for row in rows], count)
        for row, token in zip(rows, chosen, strict=True):
            if token is None:
                pending.setdefault(_next_count(count, vocab), []).append(row)
            else:
                tokens[row] = token
    return tokens


def _first_count(params: SamplingParams, vocab: int) -> int:
    if 0 < params.top_k < vocab:
        return params.top_k
    return _EVERY_TOKEN if params.top_p >= 1 else min(_CANDIDATES[0], vocab)


def _next_count(count: int, vocab: int) -> int:
    return min(next((size for size in _CANDIDATES if size > count), vocab), vocab)


def _draw_from_all(weights: Tensor, draws: list[Draw], _count: int) -> list[int | None]:
    """Choose among all tokens, in the order of their ids."""
    return list(_invert(weights.cumsum(dim=1), _column([draw.uniform for draw in draws], weights)).tolist())


def _draw_among(weights: Tensor, draws: list[Draw], count: int) -> list[int | None]:
    """Choose among the `count` heaviest tokens of each row; None where these do not hold the mass that top-p asks for.

    With top-k the candidates are the whole distribution: top-p applies to what top-k left. Kept is the shortest run of the heaviest tokens
    that reaches top-p, the token that crosses it included.
    """
    top_p = _column([draw.params.top_p for draw in draws], weights)
    limited = torch.tensor([[draw.params.top_k == count] for draw in draws], device=weights.device)
    heavy, ids = _heaviest(weights, count)
    cumulative = heavy.cumsum(dim=1)
    held = cumulative[:, -1:]
    wanted = top_p * torch.where(limited, held, weights.sum(dim=1, keepdim=True))
    enough = ((held >= wanted) | (count == weights.shape[1]))[:, 0].tolist()
    last = ((cumulative - heavy) < wanted).sum(dim=1, keepdim=True) - 1
    capped = torch.minimum(cumulative, cumulative.gather(1, last))
    tokens = ids.gather(1, _invert(capped, _column([draw.uniform for draw in draws], weights))[:, None])[:, 0].tolist()
    return [token if good else None for token, good in zip(tokens, enough, strict=True)]


def _column(values: list[float], like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=torch.float64, device=like.device)[:, None]


def _heaviest(weights: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest weights per row and their ids, heaviest first, ties by id.

    Among equal weights at the cut the choice is torch's; it depends on the row alone.
    """
    if count == weights.shape[1]:
        heavy, ids = weights.sort(dim=1, descending=True, stable=True)
        return heavy, ids
    found = weights.topk(count, dim=1).indices.sort(dim=1).values
    heavy, order = weights.gather(1, found).sort(dim=1, descending=True, stable=True)
    return heavy, found.gather(1, order)


def _invert(cumulative: Tensor, uniforms: Tensor) -> Tensor:
    """Index per row of the first entry above u times the row's last one; an entry that adds nothing is never it."""
    total = cumulative[:, -1:]
    target = torch.minimum(uniforms * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulative, target, right=True)[:, 0]
