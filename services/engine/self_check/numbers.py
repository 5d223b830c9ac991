"""Checks of the numbers that a runner computes: finite, and close to float32."""

import math
from collections.abc import Sequence
from itertools import pairwise

from services.engine.runner import ModelRunner, SamplingParams, SequenceSlice, TokenLogprobs
from services.engine.self_check.findings import Findings

_NUM_TOP = 20
_MAX_DRIFT = 0.03
"""Of the perplexity, relative."""
_LEAST_SAME = 0.93
"""Share of positions with the same likeliest token."""
_MAX_DIVERGENCE = 0.02
"""Kullback-Leibler, in nats."""
_CHUNK = 128
_MAX_EXPONENT = 500.0


def score(runner: ModelRunner, token_ids: Sequence[int]) -> list[TokenLogprobs] | str:
    """Log-probabilities of every token from the second on, or the runner's error. Uses the first blocks of the pool."""
    table = list(range(-(-len(token_ids) // runner.info.block_size)))
    found: list[TokenLogprobs] = []
    for begin, end in pairwise([*range(0, len(token_ids), _CHUNK), len(token_ids)]):
        part = SequenceSlice(1, list(token_ids[begin:end]), begin, table, SamplingParams(temperature=0), samples=end == len(token_ids))
        part.context, part.num_prompt, part.num_prompt_logprobs = token_ids, len(token_ids), _NUM_TOP
        (output,) = runner.step([part])
        if output.error is not None:
            return output.error
        found += output.prompt_logprobs
    return found


def check_finite(findings: Findings, scores: list[TokenLogprobs] | str, vocab_size: int) -> bool:
    """All numbers of the text are finite. A model for which a guess would be better passes, but is told of."""
    if isinstance(scores, str):
        return findings.add("finite", False, scores)
    finite = all(math.isfinite(each.logprob) and all(math.isfinite(logprob) for _, logprob in each.top) for each in scores)
    perplexity = _perplexity(scores)
    doubt = "; a guess is better: do tokenizer and weights belong together?" if perplexity > vocab_size else ""
    return findings.add("finite", finite and bool(scores), f"{len(scores)} positions, perplexity {perplexity:.3f}{doubt}")


def check_closeness(findings: Findings, scores: list[TokenLogprobs], reference: list[TokenLogprobs]) -> bool:
    """What serves differs little from float32 on the same weights."""
    drift = _perplexity(scores) / _perplexity(reference) - 1
    same = _mean([float(mine.top[0][0] == theirs.top[0][0]) for mine, theirs in zip(scores, reference, strict=True)])
    distance = _mean([abs(mine.logprob - theirs.logprob) for mine, theirs in zip(scores, reference, strict=True)])
    divergence = _mean([_divergence(mine, theirs) for mine, theirs in zip(scores, reference, strict=True)])
    passed = abs(drift) < _MAX_DRIFT and same > _LEAST_SAME and divergence < _MAX_DIVERGENCE
    detail = (
        f"perplexity {_perplexity(scores):.3f} (float32 {_perplexity(reference):.3f}, {100 * drift:+.2f} %), same likeliest token at "
        f"{100 * same:.1f} %, mean log-probability distance {distance:.4f}, mean divergence {divergence:.5f}"
    )
    return findings.add("closeness", passed, detail)


def _perplexity(scores: Sequence[TokenLogprobs]) -> float:
    # Beyond this no number says more, and the largest there is would be an error.
    return math.exp(min(-_mean([each.logprob for each in scores]), _MAX_EXPONENT))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / max(1, len(values))


def _divergence(mine: TokenLogprobs, theirs: TokenLogprobs) -> float:
    """Of the distributions over the tokens that both have among their likeliest, all others taken as one: a lower bound of the whole."""
    given, wanted = dict(mine.top), dict(theirs.top)
    common = given.keys() & wanted.keys()
    pairs = [(math.exp(wanted[token]), math.exp(given[token])) for token in sorted(common)]
    rest = (1 - sum(p for p, _ in pairs), 1 - sum(q for _, q in pairs))
    return sum(p * math.log(p / q) for p, q in [*pairs, rest] if p > 0 and q > 0)
