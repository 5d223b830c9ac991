"""Log-probabilities of one position: natural logarithms, of raw logits in float32."""

import numpy as np

from services.engine.runner import TokenLogprobs
from services.engine.sampling.heaviest import Row, heaviest


def token_logprobs(row: Row, token_id: int, num_top: int) -> TokenLogprobs:
    """Of `token_id` and of the `num_top` likeliest tokens; `row` is finite."""
    largest = row.max()
    with np.errstate(over="ignore"):
        norm = float(largest) + float(np.log(np.exp(row - largest).sum()))
    top = heaviest(row, num_top).tolist() if num_top else []
    return TokenLogprobs(token_id, _at(row, token_id, norm), tuple((token, _at(row, token, norm)) for token in top))


def _at(row: Row, token_id: int, norm: float) -> float:
    return min(0.0, float(row[token_id]) - norm)
