"""Drafts within the rule of a step: what they may take, what is kept of them, and that no answer depends on them."""

from collections.abc import Callable
from typing import Any

import pytest

from services.engine.runner import Drawn, SamplingParams, StepOutput, TokenLogprobs
from services.engine.sequence import EndReason, Sequence
from tests.harness.batching import EOS, Bench, Rehearsed, alone, sampled, sequence


def never() -> bool:
    return False


def rehearsed(sequence_id: int, mistakes: Callable[[], bool] = never, **fields: Any) -> Sequence:
    """A sequence whose drafts are right but for mistakes."""
    subject = sequence(sequence_id, **fields)
    subject.drafter = Rehearsed(alone(sequence(sequence_id, **fields)), len(subject.token_ids), mistakes)
    return subject


def drafting(max_drafts: int = 4, **sizes: Any) -> Bench:
    return Bench(max_drafts=max_drafts, **{"max_step_tokens": 64, **sizes})


def test_right_drafts_give_several_tokens_per_step_and_the_same_answer() -> None:
    bench = drafting()
    bench.add(rehearsed(1, max_output_tokens=21))
    counts = []
    while bench.batcher.has_work:
        (part,) = bench.step().slices
        counts.append((len(part.token_ids), part.num_drafts))
    assert counts == [(5, 0)] + [(5, 4)] * 4
    assert bench.outputs[1] == alone(sequence(1, max_output_tokens=21))
    assert bench.num_accepted == 16


@pytest.mark.parametrize("wrong", [0, 1, 2, 3])
def test_what_stands_behind_a_wrong_draft_is_computed_again(wrong: int) -> None:
    bench = drafting()
    mistakes = iter([index == wrong for index in range(4)] + [False] * 100)
    bench.add(rehearsed(1, lambda: next(mistakes), max_output_tokens=12))
    bench.step()
    bench.step()
    assert len(bench.outputs[1]) == 1 + wrong + 1
    assert [(part.start, part.num_drafts) for part in bench.step().slices] == [(5 + wrong + 1, 4)]
    bench.run()
    assert bench.outputs[1] == alone(sequence(1, max_output_tokens=12))


@pytest.mark.parametrize("seed", [1, 2])
def test_drawn_tokens_are_the_same_with_drafts(seed: int) -> None:
    bench = drafting()
    turns = iter([False, True, False, False] * 20)
    bench.add(rehearsed(1, lambda: next(turns), max_output_tokens=15, **sampled(seed)))
    bench.run()
    assert bench.outputs[1] == alone(sequence(1, max_output_tokens=15, **sampled(seed)))
    assert 0 < bench.num_accepted < 14


def test_drafts_go_no_further_than_the_answer_may() -> None:
    bench = drafting(max_drafts=9)
    bench.add(rehearsed(1, max_output_tokens=4))
    bench.step()
    assert [(len(part.token_ids), part.num_drafts) for part in bench.step().slices] == [(3, 2)]
    assert (bench.ends[1].reason, len(bench.outputs[1])) == (EndReason.LENGTH, 4)


def test_drafts_go_no_further_than_the_context() -> None:
    bench = drafting(max_drafts=9, max_step_tokens=1000, num_blocks=300)
    bench.add(rehearsed(1, num_prompt=994, max_output_tokens=50))
    bench.step()
    assert [(part.start, len(part.token_ids)) for part in bench.step().slices] == [(994, 5)]
    assert (bench.ends[1].reason, len(bench.outputs[1])) == (EndReason.LENGTH, 6)


def test_no_drafts_beside_prompts() -> None:
    bench = drafting(max_drafts=9, max_step_tokens=12)
    bench.add(rehearsed(1, max_output_tokens=50), rehearsed(2, max_output_tokens=50))
    bench.step()
    bench.add(sequence(3, num_prompt=15))
    assert [(len(part.token_ids), part.num_drafts) for part in bench.step().slices] == [(1, 0), (1, 0), (10, 0)]
    assert [(len(part.token_ids), part.num_drafts) for part in bench.step().slices] == [(1, 0), (1, 0), (5, 0)]
    assert [part.num_drafts for part in bench.step().slices] == [1, 1, 0]


def test_drafts_share_half_of_the_budget() -> None:
    bench = drafting(max_drafts=9, max_step_tokens=23)
    bench.add(rehearsed(1, max_output_tokens=50), sequence(2, max_output_tokens=50), rehearsed(3, max_output_tokens=50))
    bench.step()
    bench.step()
    assert [part.num_drafts for part in bench.step().slices] == [3, 0, 7]


def test_a_waiting_sequence_that_has_no_place_is_no_reason_against_drafts() -> None:
    bench = drafting(max_num_sequences=1)
    bench.add(rehearsed(1, max_output_tokens=50), sequence(2))
    bench.step()
    assert [part.num_drafts for part in bench.step().slices] == [4]


def test_drafts_take_no_block_from_the_reserve_and_preempt_nobody() -> None:
    bench = drafting(max_drafts=8, num_blocks=4, block_size=4)
    bench.add(rehearsed(1, num_prompt=4, max_output_tokens=11), rehearsed(2, num_prompt=4, max_output_tokens=4))
    bench.step()
    assert [part.num_drafts for part in bench.step().slices] == [0, 0]
    bench.run()
    assert bench.batcher.load().num_preemptions == 0
    assert bench.outputs[1] == alone(sequence(1, num_prompt=4, max_output_tokens=11))


@pytest.mark.parametrize(
    "fields",
    [
        {"sampling": SamplingParams(temperature=0, repetition_penalty=1.1)},
        {"sampling": SamplingParams(temperature=0, presence_penalty=0.1)},
        {"sampling": SamplingParams(temperature=0, frequency_penalty=-0.1)},
        {"min_output_tokens": 9},
    ],
)
def test_sequences_whose_next_token_depends_on_the_draft_before_have_none(fields: dict[str, Any]) -> None:
    bench = drafting()
    bench.add(rehearsed(1, max_output_tokens=9, **fields))
    while bench.batcher.has_work:
        assert [part.num_drafts for part in bench.step().slices] == [0]


def outputs_of(bench: Bench, *token_ids: int) -> list[str]:
    """A step that draws these tokens for its only sequence; its events in words."""
    plan = bench.batcher.schedule(0.0)
    further = [Drawn(token_id, TokenLogprobs(token_id, -1.0)) for token_id in token_ids[1:]]
    events = bench.batcher.postprocess(plan, [StepOutput(1, token_ids[0], logprobs=TokenLogprobs(token_ids[0], -1.0), further=further)])
    assert all(each.logprobs is not None and each.logprobs.token_id == each.token_id for each in events.sampled)
    assert (events.num_drafts, events.num_draft_tokens, events.num_accepted_tokens) == (1, 4, len(further))
    return [str(each.token_id) for each in events.sampled] + [f"{end.reason.value} {end.stop_token_id}" for end in events.ended]


@pytest.mark.parametrize(
    ("drawn", "events"),
    [
        ((7, 8), ["7", "8"]),
        ((7, EOS), ["7", "stop 0"]),
        ((7, 8, EOS, 9), ["7", "8", "stop 0"]),
        ((EOS, 7), ["stop 0"]),
        ((7, 42, 8), ["7", "stop 42"]),
    ],
)
def test_the_answer_ends_at_the_first_token_that_ends_it(drawn: tuple[int, ...], events: list[str]) -> None:
    bench = drafting()
    bench.add(rehearsed(1, max_output_tokens=9, stop_token_ids=frozenset({42})))
    bench.step()
    assert outputs_of(bench, *drawn) == events
    bench.check()
    assert bench.pool.num_used == (0 if "stop" in events[-1] else 3)


def test_blocks_of_right_drafts_are_found_by_the_next_and_those_of_wrong_ones_are_not() -> None:
    bench = drafting(max_drafts=9)
    turns = iter([False] * 7 + [True] * 100)
    bench.add(rehearsed(1, lambda: next(turns), max_output_tokens=20))
    bench.run()
    whole = sequence(1).token_ids + bench.outputs[1]
    bench.add(Sequence(2, [*whole, 3], len(whole) + 1, 4))
    bench.run()
    assert bench.num_cached[2] == len(whole) // 4 * 4
    assert bench.outputs[2] == alone(Sequence(2, [*whole, 3], len(whole) + 1, 4))


def test_speculation_is_off_by_default() -> None:
    bench = Bench()
    bench.add(rehearsed(1, max_output_tokens=9))
    bench.run()
    assert bench.num_accepted == 0
