"""Log-probabilities of a prompt: computed in pieces, so that a long prompt never has all its logits in memory."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from services.engine.runner import SequenceSlice, StepOutput
from services.engine.sampling.logprobs import token_logprobs
from services.engine.sampling.sampler import NOT_FINITE

_PIECE = 64
"""Tokens whose logits are in memory at one time."""


def num_logits(part: SequenceSlice) -> int:
    """How many of the slice's last tokens want logits: all of a piece of `score_prompt`, else those that are sampled."""
    if part.num_prompt_logprobs is not None:
        return len(part.token_ids)
    return 1 + part.num_drafts if part.samples else 0


def score_prompt(part: SequenceSlice, output: StepOutput, forward: Callable[[SequenceSlice], NDArray[np.float32]]) -> SequenceSlice | None:
    """Compute those of the slice's tokens that a prompt token follows and give `output` the log-probabilities of what follows.

    `forward` computes a slice and returns the logits of all its tokens. Returns what is left of the slice: the last token of the prompt and
    what comes after it, or None when nothing is left or the output has got an error. A slice that asks for nothing comes back as it is.
    """
    if part.num_prompt_logprobs is None:
        return part
    end = part.start + len(part.token_ids)
    scored = min(end, part.num_prompt - 1)
    found = []
    for piece in _pieces(part, scored):
        logits = forward(piece)
        if not np.isfinite(logits).all():
            output.error = NOT_FINITE
            return None
        following = part.context[piece.start + 1 : piece.start + 1 + len(piece.token_ids)]
        found += [token_logprobs(row, token, part.num_prompt_logprobs) for row, token in zip(logits, following, strict=True)]
    output.prompt_logprobs = found
    return _between(part, max(scored, part.start), end, part.samples, None) if scored < end else None


def _pieces(part: SequenceSlice, end: int) -> Iterator[SequenceSlice]:
    for begin in range(part.start, end, _PIECE):
        yield _between(part, begin, min(begin + _PIECE, end), False, part.num_prompt_logprobs)


def _between(part: SequenceSlice, begin: int, end: int, samples: bool, num_prompt_logprobs: int | None) -> SequenceSlice:
    tokens = part.token_ids[begin - part.start : end - part.start]
    return replace(part, token_ids=tokens, start=begin, samples=samples, num_prompt_logprobs=num_prompt_logprobs)


def remaining(
    sound: Sequence[tuple[SequenceSlice, StepOutput]], forward: Callable[[SequenceSlice], NDArray[np.float32]]
) -> list[tuple[SequenceSlice, StepOutput]]:
    """`score_prompt` of every slice; what is left to compute, with its outputs."""
    left = [(score_prompt(part, output, forward), output) for part, output in sound]
    return [(part, output) for part, output in left if part is not None]
