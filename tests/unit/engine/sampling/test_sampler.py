"""The sampler: biases, penalties and bans as defined, log-probabilities of raw logits, and no row looks at another."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import RepetitionPenaltyLogitsProcessor

from services.engine.runner import SamplingParams, SequenceSlice, StepOutput
from services.engine.sampling.adjustment import Adjustment
from services.engine.sampling.heaviest import Row
from services.engine.sampling.sampler import Sampler

_VOCAB = 3000
GREEDY = SamplingParams(temperature=0)


def random_logits(rows: int = 1, spread: float = 3.0, seed: int = 0) -> NDArray[np.float32]:
    return (np.random.default_rng(seed).standard_normal((rows, _VOCAB)) * spread).astype(np.float32)


def part(sampling: SamplingParams, context: Sequence[int] = (), num_prompt: int = 0, sequence_id: int = 1, **fields: Any) -> SequenceSlice:
    position = max(0, len(context) - num_prompt)
    return SequenceSlice(
        sequence_id, [0], 0, [0], sampling, True, output_position=position, context=context, num_prompt=num_prompt, **fields
    )


def choose(sampler: Sampler, logits: NDArray[np.float32], parts: Sequence[SequenceSlice]) -> list[StepOutput]:
    best = [int(row.argmax()) if np.isfinite(row).all() else -1 for row in logits]
    outputs = [StepOutput(each.sequence_id, None) for each in parts]
    sampler.choose(list(zip(parts, outputs, strict=True)), best, lambda at: logits[at])
    return outputs


def token(row: Row, asked: SequenceSlice) -> int | None:
    return choose(Sampler(), row[None], [asked])[0].token_id


def adjusted(row: Row, asked: SequenceSlice) -> Row:
    return Adjustment(asked).adjusted(row, asked)


def test_choose_greedy_takes_the_largest_and_the_lowest_id_of_a_tie() -> None:
    row = np.array([5.0, 3.0, 3.0, 5.0], dtype=np.float32)
    assert token(row, part(GREEDY)) == 0
    assert token(row, part(replace(GREEDY, logit_bias=((0, -2.0),)))) == 3
    assert token(row, part(replace(GREEDY, logit_bias=((0, -5.0), (1, 2.0))))) == 1


def test_adjusted_repetition_is_that_of_transformers() -> None:
    row = random_logits()[0]
    context = [5, 9, 9, 700, 2999, 5, 5]
    for penalty in (1.3, 0.7):
        wanted = RepetitionPenaltyLogitsProcessor(penalty)(torch.tensor([context]), torch.from_numpy(row[None].copy()))[0].numpy()
        for num_prompt in (0, 3, 7):
            found = adjusted(row, part(SamplingParams(repetition_penalty=penalty), context, num_prompt))
            np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_adjusted_frequency_and_presence_count_the_output_only_and_each_as_defined() -> None:
    row = random_logits()[0]
    context = [5, 9, 9, 700, 5, 5, 42]
    found = adjusted(row, part(SamplingParams(frequency_penalty=0.5, presence_penalty=-0.25), context, 4))
    times = Counter(context[4:])
    wanted = row.copy()
    for token_id, count in times.items():
        wanted[token_id] -= 0.5 * count - 0.25
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert (found != row).sum() == 2


def test_adjusted_order_is_bias_then_repetition_then_frequency_then_bans() -> None:
    row = np.array([1.0, -1.0, 2.0], dtype=np.float32)
    params = SamplingParams(logit_bias=((0, -3.0),), repetition_penalty=2.0, frequency_penalty=1.0, presence_penalty=0.5)
    found = adjusted(row, part(params, [0, 1, 0, 0], 2, forbidden=frozenset({2})))
    assert found.tolist() == [-2 * 2 - 2 - 0.5, -2, -np.inf]
    assert row.tolist() == [1.0, -1.0, 2.0]


@pytest.mark.parametrize("penalty", [5e-324, 1e-30])
def test_adjusted_tiny_repetition_penalty_stays_finite(penalty: float) -> None:
    found = adjusted(np.array([3e38, 0.0, -1.0], dtype=np.float32), part(SamplingParams(repetition_penalty=penalty), [0, 1, 2], 3))
    assert np.isfinite(found).all()
    assert token(found, part(SamplingParams())) == 0


def test_choose_forbidden_tokens_never_come() -> None:
    row = random_logits()[0]
    best = int(row.argmax())
    for kind in (GREEDY, SamplingParams(), SamplingParams(top_k=2), SamplingParams(top_p=0.1), SamplingParams(min_p=1)):
        assert token(row, part(kind, forbidden=frozenset({best}))) != best


def test_choose_bias_of_a_hundred_decides() -> None:
    row = random_logits()[0]
    assert {token(row, part(SamplingParams(seed=seed, logit_bias=((77, 100.0),)))) for seed in range(20)} == {77}
    likeliest = int(row.argmax())
    assert likeliest not in {token(row, part(SamplingParams(seed=seed, logit_bias=((likeliest, -100.0),)))) for seed in range(200)}


def _kinds() -> list[SamplingParams]:
    plain = [
        GREEDY,
        SamplingParams(),
        SamplingParams(top_p=0.3),
        SamplingParams(top_p=0.99),
        SamplingParams(top_k=5),
        SamplingParams(top_k=100, top_p=0.9),
        SamplingParams(temperature=1.7, top_p=0.999),
        SamplingParams(temperature=0.01),
        SamplingParams(min_p=0.1),
    ]
    added = {"logit_bias": ((3, 4.0), (900, -100.0)), "repetition_penalty": 1.3, "frequency_penalty": 0.4, "presence_penalty": 0.3}
    return [*plain, *(replace(kind, **added) for kind in plain)]  # type: ignore[arg-type]


def test_choose_row_is_independent_of_its_batch_mates() -> None:
    kinds = _kinds()
    logits = random_logits(len(kinds), spread=1.0)
    contexts = [[(row * 7 + at) % _VOCAB for at in range(3 + 5 * row)] for row in range(len(kinds))]
    parts = [part(replace(kind, seed=row), contexts[row], 3, row, num_logprobs=row % 3) for row, kind in enumerate(kinds)]
    together = choose(Sampler(), logits, parts)
    alone = [choose(Sampler(), logits[row : row + 1], [parts[row]])[0] for row in range(len(kinds))]
    assert together == alone
    assert together[::-1] == choose(Sampler(), logits[::-1], parts[::-1])


def test_choose_step_by_step_equals_a_sampler_that_sees_the_whole_context_at_once() -> None:
    """Tokens are counted as they come; a resumed, preempted or retried sequence starts with all of them."""
    params = SamplingParams(repetition_penalty=1.2, frequency_penalty=0.6, presence_penalty=0.2, seed=5)
    sampler, mate = Sampler(), [1, 2, 3]
    context = [8, 8, 9]
    for step in range(40):
        logits = random_logits(2, spread=0.5, seed=step)
        asked = part(params, context, 3)
        mates = [part(params, mate, 3, sequence_id=2)] if step % 3 else []
        found = choose(sampler, logits[: 1 + len(mates)], [asked, *mates])[0].token_id
        again = choose(sampler, logits[:1], [asked])[0].token_id
        assert found == again == token(logits[0], part(params, list(context), 3))
        assert found is not None
        context.append(found)
    assert len(set(context)) < len(context)


def test_choose_new_sequence_of_an_old_id_starts_afresh() -> None:
    params = SamplingParams(temperature=0, presence_penalty=2)
    row = np.array([[1.0, 0.5, 0.0]], dtype=np.float32)
    sampler = Sampler()
    assert choose(sampler, row, [part(params, [2, 0], 1)])[0].token_id == 1
    assert choose(sampler, row, [part(params, [2, 1], 1)])[0].token_id == 0
    assert choose(sampler, row, [part(params, [2, 0], 2)])[0].token_id == 0


def test_choose_equal_seed_choice_and_position_draw_equal_tokens_and_each_one_matters() -> None:
    row = random_logits(spread=0.1)[0]

    def drawn(seed: int, choice: int, position: int) -> int | None:
        return token(row, SequenceSlice(1, [0], 0, [0], SamplingParams(seed=seed), True, choice=choice, output_position=position))

    assert drawn(7, 0, 3) == drawn(7, 0, 3)
    assert len({drawn(7, 0, 3), drawn(8, 0, 3), drawn(7, 1, 3), drawn(7, 0, 4)}) == 4


@pytest.mark.parametrize(
    "kind", [GREEDY, SamplingParams(seed=3), SamplingParams(temperature=0.7, top_p=0.9, seed=4, logit_bias=((5, 3.0),))]
)
@pytest.mark.parametrize("num_right", [0, 1, 3])
def test_choose_keeps_what_would_have_been_drawn_token_by_token(kind: SamplingParams, num_right: int) -> None:
    logits = random_logits(6, spread=1.0)
    alone = [choose(Sampler(), logits[row : row + 1], [replace(part(kind, num_logprobs=2), output_position=row)])[0] for row in range(1, 5)]
    tokens = [output.token_id for output in alone]
    drafts = [token_id if at < num_right else (token_id or 0) + 1 for at, token_id in enumerate(tokens[:3])]
    mates = [part(GREEDY, sequence_id=row) for row in (2, 3)]
    asked = replace(part(kind, num_logprobs=2), token_ids=[0, *drafts], num_drafts=3, output_position=1)
    before, output, behind = choose(Sampler(), logits, [mates[0], asked, mates[1]])
    assert [(each.token_id, each.logprobs) for each in output.drawn] == [(each.token_id, each.logprobs) for each in alone[: num_right + 1]]
    assert [before.token_id, behind.token_id] == [int(logits[row].argmax()) for row in (0, 5)]


def test_choose_stops_before_a_draft_whose_logits_are_not_finite() -> None:
    logits = random_logits(3)
    logits[2, 5] = np.inf
    tokens = [int(row.argmax()) for row in logits[:2]]
    (output,) = choose(Sampler(), logits, [replace(part(GREEDY), token_ids=[0, *tokens], num_drafts=2)])
    assert ([each.token_id for each in output.drawn], output.error) == (tokens, None)


def test_choose_row_that_is_not_finite_is_an_error_and_spares_the_others() -> None:
    logits = random_logits(3)
    logits[1, 17] = np.nan
    parts = [part(kind, sequence_id=row) for row, kind in enumerate((SamplingParams(), SamplingParams(), GREEDY))]
    outputs = choose(Sampler(), logits, parts)
    assert (outputs[1].token_id, outputs[1].error) == (None, "the model's logits are not finite")
    assert [outputs[row].token_id for row in (0, 2)] == [token(logits[row], parts[row]) for row in (0, 2)]


@pytest.mark.parametrize("num_top", [0, 1, 5, 20])
def test_choose_log_probabilities_are_of_raw_logits_and_the_top_comes_first(num_top: int) -> None:
    row = random_logits()[0]
    params = SamplingParams(temperature=0.3, logit_bias=((17, 100.0),), repetition_penalty=1.5)
    (output,) = choose(Sampler(), row[None], [part(params, [4, 5], 2, num_logprobs=num_top)])
    found = output.logprobs
    wanted = torch.from_numpy(row).double().log_softmax(dim=0)
    assert found is not None
    assert (output.token_id, found.token_id) == (17, 17)
    assert found.logprob == pytest.approx(wanted[17].item(), abs=1e-5)
    assert [token_id for token_id, _ in found.top] == wanted.topk(num_top).indices.tolist()
    assert [logprob for _, logprob in found.top] == pytest.approx(wanted.topk(num_top).values.tolist(), abs=1e-5)
    assert all(logprob <= 0 for _, logprob in found.top)


def test_choose_without_a_wish_for_log_probabilities_gives_none() -> None:
    (output,) = choose(Sampler(), random_logits(), [part(SamplingParams())])
    assert output.logprobs is None
