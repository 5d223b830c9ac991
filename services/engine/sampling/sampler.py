"""Gives the slices of a step their tokens: a row's token depends on its own logits, request, history and random number, on nothing else."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from services.engine.philox import uniform
from services.engine.runner import Drawn, SequenceSlice, StepOutput
from services.engine.sampling.adjustment import Adjustment, is_adjusted
from services.engine.sampling.draw import draw
from services.engine.sampling.heaviest import Row
from services.engine.sampling.logprobs import token_logprobs

NOT_FINITE = "the model's logits are not finite"


def needs_row(part: SequenceSlice) -> bool:
    """Whether more than the likeliest token is needed to choose for this slice."""
    return part.sampling.temperature > 0 or part.num_logprobs is not None or is_adjusted(part)


def rows_of(sampled: Iterable[SequenceSlice]) -> Iterator[SequenceSlice]:
    """The slice of every row of logits, in order: one for the next token and one for each draft."""
    return (part for part in sampled for _ in range(1 + part.num_drafts))


class Sampler:
    """Keeps the adjustments of sequences that sampled in the last step. One per runner, used by the step thread only."""

    def __init__(self) -> None:
        self._adjustments: dict[int, Adjustment] = {}

    def choose(self, sampled: Sequence[tuple[SequenceSlice, StepOutput]], best: Sequence[int], row: Callable[[int], Row]) -> None:
        """Fill the outputs of slices that sample, in the order of their rows of logits.

        `best` holds each row's likeliest token, the lowest id of equals, or -1 where the row is not finite: that is the output's error.
        `row` gives a row's logits; it is called only where `needs_row`, and they are not changed.
        """
        adjustments: dict[int, Adjustment] = {}
        at = 0
        for part, output in sampled:
            if is_adjusted(part):
                adjustments[part.sequence_id] = self._adjustment(part)
            adjustment = adjustments.get(part.sequence_id)
            if best[at] < 0:
                output.error = NOT_FINITE
            else:
                first = _drawn(part, best[at], partial(row, at), adjustment)
                output.token_id, output.logprobs = first.token_id, first.logprobs
                output.further = list(_further(part, first, best, at, row, adjustment))
            at += 1 + part.num_drafts
        self._adjustments = adjustments

    def _adjustment(self, part: SequenceSlice) -> Adjustment:
        known = self._adjustments.get(part.sequence_id)
        return known if known is not None and known.belongs_to(part) else Adjustment(part)


def _further(
    part: SequenceSlice, last: Drawn, best: Sequence[int], at: int, row: Callable[[int], Row], adjustment: Adjustment | None
) -> Iterator[Drawn]:
    """Tokens behind drafts that were right. Where logits are not finite the next step, which begins there, will find out."""
    for index, draft in enumerate(part.token_ids[len(part.token_ids) - part.num_drafts :], 1):
        if last.token_id != draft or best[at + index] < 0:
            return
        last = _drawn(replace(part, output_position=part.output_position + index), best[at + index], partial(row, at + index), adjustment)
        yield last


def _drawn(part: SequenceSlice, best: int, row: Callable[[], Row], adjustment: Adjustment | None) -> Drawn:
    """One token from one row."""
    if not needs_row(part):
        return Drawn(best)
    logits = row()
    token_id = _token(logits if adjustment is None else adjustment.adjusted(logits, part), part)
    return Drawn(token_id, None if part.num_logprobs is None else token_logprobs(logits, token_id, part.num_logprobs))


def _token(row: Row, part: SequenceSlice) -> int:
    if part.sampling.temperature == 0:
        return int(row.argmax())
    return draw(row, part.sampling, uniform(part.sampling.seed, part.choice, part.output_position))
