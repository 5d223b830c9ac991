"""What a request adds to its logits before a token is chosen: biases, penalties and tokens that must not come."""

from collections.abc import Sequence

import numpy as np

from services.engine.runner import SamplingParams, SequenceSlice
from services.engine.sampling.heaviest import Row

_LARGEST = float(np.finfo(np.float32).max)


def is_adjusted(part: SequenceSlice) -> bool:
    """Whether the slice's logits are chosen from as they are not."""
    return bool(part.forbidden or part.sampling.logit_bias) or part.sampling.is_penalised


class Adjustment:
    """The adjustment of one sequence. Tokens are counted once, when they are new: a long context costs nothing per step but its distinct
    tokens. Relies on the sequence's list of tokens only ever growing at its end.
    """

    def __init__(self, part: SequenceSlice) -> None:
        self._context = part.context
        self._num_prompt = part.num_prompt
        self._params = part.sampling
        self._bias_ids = np.array([token for token, _ in part.sampling.logit_bias], dtype=np.int64)
        self._biases = np.array([bias for _, bias in part.sampling.logit_bias], dtype=np.float32)
        self._penalties = _Penalties(part.sampling) if part.sampling.is_penalised else None
        self._num_counted = 0

    def belongs_to(self, part: SequenceSlice) -> bool:
        """Whether it has counted this very list of tokens, for the same request."""
        return self._context is part.context and self._num_prompt == part.num_prompt and self._params is part.sampling

    def adjusted(self, row: Row, part: SequenceSlice) -> Row:
        """A changed copy of `row`; forbidden tokens are at minus infinity."""
        row = row.copy()
        row[self._bias_ids] += self._biases
        if self._penalties is not None:
            self._count(self._penalties)
            self._penalties.apply(row)
        if part.forbidden:
            row[list(part.forbidden)] = -np.inf
        return row

    def _count(self, penalties: "_Penalties") -> None:
        begin, self._num_counted = self._num_counted, len(self._context)
        split = max(begin, self._num_prompt)
        penalties.count(self._context[begin:split], 0)
        penalties.count(self._context[split : self._num_counted], 1)


class _Penalties:
    """The distinct tokens of prompt and output, how often each is in the output, and what that does to logits.

    Repetition as defined by Keskar et al. 2019 (CTRL), frequency and presence as OpenAI's API defines them.
    """

    def __init__(self, params: SamplingParams) -> None:
        self._params = params
        self._places: dict[int, int] = {}
        self._ids = np.zeros(64, dtype=np.int64)
        self._counts = np.zeros(64, dtype=np.float64)

    def count(self, token_ids: Sequence[int], times: int) -> None:
        """Take tokens in: each counts `times` towards the output."""
        for token_id in token_ids:
            place = self._places.setdefault(token_id, len(self._places))
            if place == len(self._ids):
                self._ids, self._counts = (np.concatenate([array, np.zeros_like(array)]) for array in (self._ids, self._counts))
            self._ids[place] = token_id
            self._counts[place] += times

    def apply(self, row: Row) -> None:
        """Change `row`; what would leave float32 stays at its end."""
        ids, counts = self._ids[: len(self._places)], self._counts[: len(self._places)]
        logits = row[ids].astype(np.float64)
        repetition = self._params.repetition_penalty
        if repetition != 1:
            with np.errstate(over="ignore"):
                logits = np.where(logits > 0, logits / repetition, logits * repetition)
        logits -= self._params.frequency_penalty * counts + self._params.presence_penalty * (counts > 0)
        row[ids] = np.clip(logits, -_LARGEST, _LARGEST)
