"""Gives the slices of a step their tokens: a row's token depends on its own logits, request, history and random number, on nothing else."""

from collections.abc import Callable, Sequence

from services.engine.philox import uniform
from services.engine.runner import SequenceSlice, StepOutput
from services.engine.sampling.adjustment import Adjustment, is_adjusted
from services.engine.sampling.draw import draw
from services.engine.sampling.heaviest import Row
from services.engine.sampling.logprobs import token_logprobs

NOT_FINITE = "the model's logits are not finite"


def needs_row(part: SequenceSlice) -> bool:
    """Whether more than the likeliest token is needed to choose for this slice."""
    return part.sampling.temperature > 0 or part.num_logprobs is not None or is_adjusted(part)


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
        for at, (part, output) in enumerate(sampled):
            if best[at] < 0:
                output.error = NOT_FINITE
                continue
            if not needs_row(part):
                output.token_id = best[at]
                continue
            logits = row(at)
            changed = logits
            if is_adjusted(part):
                adjustment = adjustments[part.sequence_id] = self._adjustment(part)
                changed = adjustment.adjusted(logits, part)
            output.token_id = _token(changed, part)
            if part.num_logprobs is not None:
                output.logprobs = token_logprobs(logits, output.token_id, part.num_logprobs)
        self._adjustments = adjustments

    def _adjustment(self, part: SequenceSlice) -> Adjustment:
        known = self._adjustments.get(part.sequence_id)
        return known if known is not None and known.belongs_to(part) else Adjustment(part)


def _token(row: Row, part: SequenceSlice) -> int:
    if part.sampling.temperature == 0:
        return int(row.argmax())
    return draw(row, part.sampling, uniform(part.sampling.seed, part.choice, part.output_position))
