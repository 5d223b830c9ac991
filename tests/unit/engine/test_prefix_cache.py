"""What is computed once is not computed again, for whom it may be found, and what may never be found."""

from typing import Any

import pytest

from services.engine.kv_events import Removed, Stored
from services.engine.runner import StepOutput
from services.engine.sequence import EndReason, Sequence
from tests.harness.batching import Bench, alone

SIZE = 4
PROMPT = list(range(11, 22))


def make(sequence_id: int, token_ids: list[int] = PROMPT, max_output_tokens: int = 3, **fields: Any) -> Sequence:
    return Sequence(sequence_id, list(token_ids), len(token_ids), max_output_tokens, **fields)


def computed(bench: Bench) -> list[tuple[int, int, int]]:
    """(sequence, start, number of tokens) of one step."""
    return [(part.sequence_id, part.start, len(part.token_ids)) for part in bench.step().slices]


def run(bench: Bench, *sequences: Sequence) -> None:
    """Run to the end, and compare with what each gives alone."""
    solo = {subject.sequence_id: alone(make(subject.sequence_id, subject.token_ids, subject.max_output_tokens)) for subject in sequences}
    bench.add(*sequences)
    bench.run()
    assert {sequence_id: bench.outputs[sequence_id] for sequence_id in solo} == solo


def test_equal_prompt_is_found_but_for_its_last_token() -> None:
    bench = Bench()
    run(bench, make(1))
    bench.add(second := make(2))
    assert computed(bench) == [(2, 10, 1)]
    assert (second.num_cached, bench.num_cached) == (10, {1: 0, 2: 10})
    bench.run()
    assert bench.outputs[2] == bench.outputs[1]


def test_prompt_of_full_blocks_is_never_found_whole() -> None:
    bench = Bench()
    run(bench, make(1, PROMPT[:8]))
    bench.add(make(2, PROMPT[:8]))
    assert computed(bench) == [(2, 7, 1)]
    assert bench.num_cached[2] == 7


@pytest.mark.parametrize(
    ("first", "second", "num_cached"), [(b"a", b"a", 10), (b"a", b"b", 0), (b"", b"a", 0), (b"a", b"", 0), (b"", b"", 10)]
)
def test_only_sequences_of_equal_salt_find_each_other(first: bytes, second: bytes, num_cached: int) -> None:
    bench = Bench()
    run(bench, make(1, cache_salt=first), make(2, cache_salt=second))
    run(bench, make(3, cache_salt=second))
    assert bench.num_cached == {1: 0, 2: num_cached, 3: 10}


def test_next_turn_of_a_conversation_finds_prompt_and_answer() -> None:
    bench = Bench()
    run(bench, make(1, max_output_tokens=8))
    history = PROMPT + bench.outputs[1]
    run(bench, make(2, [*history, 5, 6, 7]))
    assert bench.num_cached[2] == 16  # All full blocks.


def test_stopped_sequence_leaves_what_it_computed() -> None:
    bench = Bench(max_step_tokens=8)
    bench.add(make(1))
    bench.step()
    bench.stop(1)
    assert (bench.pool.num_cached, bench.pool.num_used) == (2, 0)
    run(bench, make(2))
    assert bench.num_cached[2] == 8


def test_preempted_sequence_finds_what_it_computed_and_counts_nothing_twice() -> None:
    bench = Bench(num_blocks=7, max_num_sequences=2)
    run(bench, make(1, PROMPT[:7], 9), second := make(2, PROMPT[4:], 9))
    load = bench.batcher.load()
    assert load.num_preemptions > 0
    assert (second.num_cached, load.num_cache_query_tokens, load.num_cache_hit_tokens) == (0, 7 + 7, 0)
    assert bench.ends[2].num_discarded < 8  # It was computed as far as position 8 or more.


def test_resumed_sequence_counts_prompt_tokens_only() -> None:
    bench = Bench()
    run(bench, make(1, max_output_tokens=9))
    resumed = Sequence(2, PROMPT + bench.outputs[1][:6], len(PROMPT), 9, num_delivered=6)
    bench.add(resumed)
    bench.run()
    assert bench.outputs[1][:6] + bench.outputs[2] == bench.outputs[1]
    assert bench.num_cached[2] == len(PROMPT) - 1


def test_failed_step_leaves_nothing_to_find() -> None:
    bench = Bench()
    bench.add(make(1))
    bench.fail_step()
    assert bench.ends[1].reason is EndReason.STEP_FAILED
    assert (bench.pool.num_cached, bench.pool.num_used) == (0, 0)
    run(bench, make(2))
    assert bench.num_cached[2] == 0


def test_sequence_of_unsound_numbers_takes_all_its_blocks_out_and_those_computed_from_them() -> None:
    bench = Bench(max_step_tokens=8)
    run(bench, make(1, [*PROMPT[:8], 1, 2, 3, 4, 5]), make(2, [90, 91, 92, 93, 94]))
    bench.add(make(3))
    assert [(part.sequence_id, part.start) for part in bench.step(spoiled={3}).slices] == [(3, 8)]
    assert bench.ends[3].reason is EndReason.NON_FINITE_LOGITS
    run(bench, make(4), make(5, [90, 91, 92, 93, 94]))
    assert bench.num_cached == {1: 0, 2: 0, 3: 8, 4: 0, 5: 4}


def test_sequence_that_lost_its_beginning_stores_nothing_behind_it() -> None:
    bench = Bench()
    bench.add(make(1, max_output_tokens=12))
    bench.step()
    bench.add(make(2))
    bench.step(spoiled={2})
    bench.run()
    assert bench.pool.num_cached == 0
    assert bench.outputs[1] == alone(make(1, max_output_tokens=12))


def test_prompt_logprobs_are_computed_not_found_and_what_is_computed_twice_is_kept_once() -> None:
    bench = Bench()
    run(bench, make(1))
    num_cached = bench.pool.num_cached
    bench.add(make(2, num_prompt_logprobs=0, max_output_tokens=1))
    assert computed(bench) == [(2, 0, 11)]
    assert bench.num_cached[2] == 0
    assert bench.pool.num_cached == num_cached


def test_prompt_logprobs_of_a_prompt_that_was_half_computed_when_preempted_are_given_once_each() -> None:
    bench = Bench(num_blocks=6, max_num_sequences=2, max_step_tokens=2)
    young = make(2, list(range(50, 62)), 1, num_prompt_logprobs=0)
    bench.add(make(1, PROMPT[:4], 12), young)
    given: list[int] = []
    given_at_preemption = None
    while bench.batcher.has_work:
        plan = bench.batcher.schedule(0.0)
        if bench.batcher.load().num_preemptions and given_at_preemption is None:
            given_at_preemption = len(given)
        bench.runner.copy_blocks(plan.copies)
        for event in bench.batcher.postprocess(plan, bench.runner.step(plan.slices)).prompt_logprobs:
            given += [position.token_id for position in event.logprobs]
    assert given_at_preemption in range(1, 11)
    assert given == young.token_ids[1:12]


def test_of_equal_blocks_that_two_computed_both_use_one() -> None:
    bench = Bench(max_step_tokens=32)
    bench.add(make(1, max_output_tokens=9), make(2, max_output_tokens=9, num_prompt_logprobs=0))
    bench.step()
    assert list(bench.pool.table(1))[:2] == list(bench.pool.table(2))[:2]
    assert bench.pool.num_used == 4
    bench.run()
    assert bench.outputs[1] == bench.outputs[2]


def test_equal_prompts_at_once_are_computed_once() -> None:
    bench = Bench(max_step_tokens=8)
    bench.add(make(1), make(2), make(3))
    assert computed(bench) == [(1, 0, 8)]
    assert computed(bench) == [(1, 8, 3), (2, 8, 3), (3, 8, 2)]
    bench.run()
    assert bench.outputs[2] == bench.outputs[3] == bench.outputs[1] == alone(make(1))
    assert bench.num_cached == {1: 0, 2: 8, 3: 8}


def test_who_waits_for_a_block_lets_others_pass() -> None:
    bench = Bench(max_step_tokens=16)
    bench.add(make(1), make(2), make(3, [60, 61, 62]))
    assert {part[0] for part in computed(bench)} == {1, 3}


def test_who_waits_for_a_block_computes_it_when_the_other_is_stopped() -> None:
    bench = Bench(max_step_tokens=8, max_num_sequences=4)
    bench.add(make(1, PROMPT * 2), make(2, PROMPT * 2))
    assert computed(bench) == [(1, 0, 8)]
    bench.stop(1)
    assert computed(bench) == [(2, 8, 8)]


def test_nobody_waits_for_a_block_of_a_less_urgent_sequence() -> None:
    bench = Bench(max_step_tokens=8)
    bench.add(make(1, PROMPT * 2))
    bench.step()
    bench.add(make(2, PROMPT * 2, priority=1))
    assert (2, 8, 8) in computed(bench)


def test_common_start_of_a_block_is_copied_from_a_cached_block() -> None:
    bench = Bench()
    run(bench, make(1))
    run(bench, make(2, [*PROMPT[:6], 99, 98, 97]))
    assert bench.num_cached[2] == 6


def test_common_start_of_a_block_is_copied_from_a_running_sequence() -> None:
    bench = Bench()
    bench.add(make(1, PROMPT[:7], max_output_tokens=20))
    bench.step()
    run(bench, make(2, [*PROMPT[:6], 99]))
    assert bench.num_cached[2] == 6
    assert bench.outputs[1] == alone(make(1, PROMPT[:7], max_output_tokens=20))


def test_copies_of_one_step_have_one_source_and_are_no_chain() -> None:
    bench = Bench()
    bench.add(make(1, PROMPT[:7], max_output_tokens=20))
    bench.step()
    bench.add(make(2, [*PROMPT[:6], 98], priority=1), make(3, [*PROMPT[:6], 99]))
    copies = bench.step().copies
    assert len(copies) == 2
    assert {source for source, _ in copies} == {bench.pool.table(1)[1]}


def test_copy_that_has_no_room_is_not_made() -> None:
    bench = Bench(num_blocks=4)
    run(bench, make(1, PROMPT[:8], max_output_tokens=1))
    bench.add(make(2, [*PROMPT[:6], *range(50, 60)], max_output_tokens=1))
    assert computed(bench) == [(2, 4, 12)]  # With the copy's source it would need five blocks of four.
    bench.check()


def test_blocks_are_evicted_from_the_end_of_the_prefix_unused_for_longest() -> None:
    bench = Bench(num_blocks=6)
    run(bench, make(1, PROMPT[:9], 1), make(2, range(30, 39), 1))  # type: ignore[arg-type]
    assert bench.pool.num_cached == 4
    run(bench, make(3, range(50, 61), 1))  # type: ignore[arg-type]
    assert bench.pool.num_evictions == 1
    run(bench, make(4, PROMPT[:9], 1))
    assert bench.num_cached[4] == 4
    assert bench.batcher.load().num_evictions >= 1


def test_load_tells_what_was_looked_for_and_found() -> None:
    bench = Bench()
    run(bench, make(1))
    run(bench, make(2))
    load = bench.batcher.load()
    assert (load.num_cache_query_tokens, load.num_cache_hit_tokens) == (22, 10)
    assert load.num_cached_blocks == bench.pool.num_cached


def events_of(bench: Bench) -> list[Stored | Removed]:
    """Events of one step."""
    plan = bench.batcher.schedule(bench.now_s)
    bench.runner.copy_blocks(plan.copies)
    return bench.batcher.postprocess(plan, bench.runner.step(plan.slices)).kv  # type: ignore[return-value]


def test_events_name_runs_of_blocks_in_the_order_of_what_happened() -> None:
    bench = Bench(num_blocks=4)
    bench.add(make(1, PROMPT[:9], 1))
    (stored,) = events_of(bench)
    assert isinstance(stored, Stored)
    assert (stored.parent, len(stored.hashes)) == (b"", 2)
    bench.add(make(2, [*PROMPT[:8], 1, 2, 3, 4, 5], 1))
    (behind,) = events_of(bench)
    assert isinstance(behind, Stored)
    assert behind.parent == stored.hashes[-1]
    bench.add(make(3, [70, 71, 72, 73, 74, 75, 76, 77, 78], 1))
    removed, new = events_of(bench)
    assert removed == Removed((behind.hashes[0], stored.hashes[1]))
    assert isinstance(new, Stored)
    assert new.parent == b""


def test_events_of_one_step_are_one_run_per_prompt_and_begin_where_it_branches_off() -> None:
    bench = Bench(max_step_tokens=64)
    bench.add(make(1, PROMPT[:9], 1))
    (common,) = events_of(bench)
    assert isinstance(common, Stored)
    others = [[*PROMPT[:4], *range(30, 39)], [*PROMPT[:8], *range(40, 49)], list(range(60, 69))]
    bench.add(*(make(number, tokens, 1) for number, tokens in enumerate(others, 2)))
    stored = events_of(bench)
    assert all(isinstance(event, Stored) for event in stored)
    assert [(event.parent, len(event.hashes)) for event in stored if isinstance(event, Stored)] == [
        (common.hashes[0], 2),
        (common.hashes[1], 2),
        (b"", 2),
    ]


def test_events_of_unsound_numbers_remove_children_first() -> None:
    bench = Bench()
    bench.add(make(1, PROMPT[:9], 1))
    (stored,) = events_of(bench)
    bench.add(make(2, [*PROMPT[:8], 9], 1))
    plan = bench.batcher.schedule(0.0)
    events = bench.batcher.postprocess(plan, [StepOutput(2, None, "not finite")])
    assert events.kv == [Removed(stored.hashes[::-1])]
