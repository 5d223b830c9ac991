"""The rule of a step, its bounds, and that nobody's output depends on company or preemption."""

import pytest

from services.engine.batcher import MAX_OVERTAKES, Batcher, BatchLimits
from services.engine.block_pool import BlockPool
from services.engine.plan import StepEvents
from services.engine.runner import StepOutput, TokenLogprobs
from services.engine.sequence import AGEING_S, EndReason, Sequence
from tests.harness.batching import EOS, Bench, alone, new_cache, sampled, sequence


def parts(plan: object) -> list[tuple[int, int, int, bool]]:
    """(sequence, start, number of tokens, samples) of every slice."""
    return [(part.sequence_id, part.start, len(part.token_ids), part.samples) for part in plan.slices]  # type: ignore[attr-defined]


def test_schedule_long_prompt_is_cut_into_chunks_and_sampled_once() -> None:
    bench = Bench(max_step_tokens=8)
    bench.add(sequence(1, num_prompt=20, max_output_tokens=1))
    assert [parts(bench.step()) for _ in range(3)] == [[(1, 0, 8, False)], [(1, 8, 8, False)], [(1, 16, 4, True)]]
    assert bench.ends[1].reason is EndReason.LENGTH


def test_schedule_decodes_come_before_prefill_and_share_the_budget() -> None:
    bench = Bench(max_step_tokens=8)
    bench.add(sequence(1, num_prompt=4), sequence(2, num_prompt=4))
    bench.step()
    bench.add(sequence(3, num_prompt=20))
    assert parts(bench.step()) == [(1, 4, 1, True), (2, 4, 1, True), (3, 0, 6, False)]
    assert parts(bench.step()) == [(1, 5, 1, True), (2, 5, 1, True), (3, 6, 6, False)]


def test_schedule_prefill_is_first_come_first_served() -> None:
    bench = Bench(max_step_tokens=8)
    bench.add(sequence(1, num_prompt=10), sequence(2, num_prompt=10))
    assert parts(bench.step()) == [(1, 0, 8, False)]
    assert parts(bench.step()) == [(1, 8, 2, True), (2, 0, 6, False)]


def test_plan_names_those_that_begin_with_it() -> None:
    bench = Bench(max_step_tokens=8)
    bench.add(sequence(1, num_prompt=10), sequence(2, num_prompt=10))
    assert [[begun.sequence_id for begun in bench.step().begun] for _ in range(3)] == [[1], [2], []]


def test_schedule_full_of_decodes_does_not_admit() -> None:
    bench = Bench(max_num_sequences=4, max_step_tokens=4)
    bench.add(*(sequence(index, num_prompt=1) for index in (1, 2, 3)))
    bench.step()
    bench.add(sequence(4, num_prompt=3))
    assert [part[0] for part in parts(bench.step())] == [1, 2, 3, 4]
    bench.add(sequence(5))
    bench.step()
    assert bench.batcher.load().num_waiting == 1


def test_schedule_admits_by_blocks_with_a_reserve_beside_others() -> None:
    bench = Bench(num_blocks=5, block_size=4)
    bench.add(sequence(1, num_prompt=8, max_output_tokens=1), sequence(2, num_prompt=12, max_output_tokens=1))
    assert parts(bench.step()) == [(1, 0, 8, True)]
    assert parts(bench.step()) == [(2, 0, 12, True)]


def test_schedule_short_prompt_does_not_wait_for_a_long_one() -> None:
    bench = Bench(num_blocks=256, max_step_tokens=16)
    bench.add(sequence(1, num_prompt=400))
    bench.step()
    bench.add(sequence(2, num_prompt=12))
    assert parts(bench.step()) == [(1, 16, 4, False), (2, 0, 12, True)]


def test_schedule_long_prompt_goes_on_however_many_short_ones_come() -> None:
    bench = Bench(num_blocks=256, max_step_tokens=16)
    bench.add(sequence(1, num_prompt=40, max_output_tokens=1))
    for index in range(2, 30):
        bench.add(sequence(index, num_prompt=16, max_output_tokens=1))
        bench.step()
    assert bench.ends[1].reason is EndReason.LENGTH


def test_schedule_small_prompts_pass_one_that_does_not_fit_but_not_for_ever() -> None:
    bench = Bench(num_blocks=8, block_size=4, max_num_sequences=4)
    bench.add(sequence(1, num_prompt=8, max_output_tokens=20))
    bench.step()
    bench.add(sequence(2, num_prompt=28, max_output_tokens=1))
    order = []
    for index in range(3, 90):
        bench.add(sequence(index, num_prompt=3, max_output_tokens=1))
        order += [begun.sequence_id for begun in bench.step().begun]
    assert order.index(2) == MAX_OVERTAKES
    assert sorted(order) == list(range(2, 2 + len(order)))


@pytest.mark.parametrize(
    ("first", "second", "goes_first"),
    [
        ({}, {}, 1),
        ({"priority": 1}, {}, 1),
        ({}, {"priority": 1}, 2),
        ({"arrived_s": 1.0}, {"arrived_s": 0.0}, 2),
        ({}, {"priority": 1, "arrived_s": AGEING_S - 0.1}, 2),
        ({}, {"priority": 1, "arrived_s": AGEING_S + 0.1}, 1),
        ({"priority": -2}, {"arrived_s": 2 * AGEING_S + 0.1}, 1),
    ],
)
def test_waiting_raises_a_sequence_by_a_class_at_a_time(first: dict[str, float], second: dict[str, float], goes_first: int) -> None:
    bench = Bench(max_num_sequences=1)
    bench.add(sequence(1, **first), sequence(2, **second))
    assert [begun.sequence_id for begun in bench.step().begun] == [goes_first]


def test_schedule_higher_priority_is_admitted_first_and_preempted_last() -> None:
    bench = Bench(num_blocks=4, block_size=4, max_num_sequences=2)
    bench.add(sequence(1, num_prompt=4, max_output_tokens=8), sequence(2, num_prompt=4, max_output_tokens=8, priority=1))
    bench.step()
    bench.add(sequence(3, num_prompt=4, priority=2))
    preempted = []
    bench.run(after_step=lambda: preempted.append(bench.batcher.load().num_preemptions))
    assert preempted[-1] > 0
    assert (bench.ends[2].num_discarded, bench.ends[1].num_discarded > 0) == (0, True)


def test_add_beyond_places_and_waiting_room_is_refused() -> None:
    bench = Bench(max_num_sequences=2, max_num_waiting=1)
    bench.add(*(sequence(index) for index in range(1, 5)))
    assert [(ended.sequence_id, ended.reason) for ended in bench.ends.values()] == [(4, EndReason.QUEUE_FULL)]
    bench.run()
    assert [len(bench.outputs[index]) for index in range(1, 5)] == [4, 4, 4, 0]


def test_end_of_sequence_token_ends_and_is_not_counted() -> None:
    bench = Bench(eos_every=3)
    bench.add(sequence(1, max_output_tokens=200))
    bench.run()
    assert bench.ends[1].reason is EndReason.STOP
    assert EOS not in bench.outputs[1]


def test_end_of_sequence_token_is_a_token_when_ignored() -> None:
    bench = Bench(eos_every=3)
    bench.add(sequence(1, max_output_tokens=50, ignore_eos=True))
    bench.run()
    assert (bench.ends[1].reason, len(bench.outputs[1])) == (EndReason.LENGTH, 50)
    assert EOS in bench.outputs[1]


def outputs_of(bench: Bench, *token_ids: int) -> StepEvents:
    """One step that draws these tokens, one per slice."""
    plan = bench.batcher.schedule(0.0)
    drawn = zip(plan.slices, token_ids, strict=True)
    return bench.batcher.postprocess(plan, [StepOutput(part.sequence_id, token_id) for part, token_id in drawn])


@pytest.mark.parametrize(
    ("fields", "drawn"),
    [
        ({}, EOS),
        ({"stop_token_ids": frozenset({7})}, 7),
        ({"stop_token_ids": frozenset({7})}, EOS),
        ({"stop_token_ids": frozenset({EOS}), "ignore_eos": True}, EOS),
    ],
)
def test_stop_token_ends_and_is_no_output(fields: dict[str, object], drawn: int) -> None:
    bench = Bench()
    bench.add(sequence(1, **fields))
    events = outputs_of(bench, drawn)
    assert events.sampled == []
    assert [(ended.reason, ended.stop_token_id) for ended in events.ended] == [(EndReason.STOP, drawn)]


def test_end_by_length_names_no_stop_token() -> None:
    bench = Bench()
    bench.add(sequence(1, max_output_tokens=1))
    assert [(ended.reason, ended.stop_token_id) for ended in outputs_of(bench, 7).ended] == [(EndReason.LENGTH, None)]


@pytest.mark.parametrize(("ignore_eos", "forbidden"), [(False, {EOS, 7}), (True, {7})])
def test_tokens_that_would_end_are_forbidden_before_the_least_output(ignore_eos: bool, forbidden: set[int]) -> None:
    bench = Bench()
    bench.add(sequence(1, max_output_tokens=9, min_output_tokens=2, stop_token_ids=frozenset({7}), ignore_eos=ignore_eos))
    seen = []
    for _ in range(3):
        plan = bench.batcher.schedule(0.0)
        seen.append(set(plan.slices[0].forbidden))
        bench.batcher.postprocess(plan, [StepOutput(1, 9)])
    assert seen == [forbidden, forbidden, set()]


def test_delivered_tokens_count_towards_the_least_output() -> None:
    bench = Bench()
    bench.add(Sequence(1, [5, 6, 8, 8], num_prompt=2, max_output_tokens=9, num_delivered=2, min_output_tokens=2))
    assert bench.batcher.schedule(0.0).slices[0].forbidden == frozenset()


def test_slice_carries_what_the_sampler_needs() -> None:
    bench = Bench(max_step_tokens=8)
    bench.add(sequence(1, num_prompt=10, num_logprobs=2, num_prompt_logprobs=3))
    (first,) = bench.batcher.schedule(0.0).slices
    assert (first.num_prompt, first.num_logprobs, first.num_prompt_logprobs) == (10, 2, 3)
    assert list(first.context) == sequence(1, num_prompt=10).token_ids


def test_prompt_logprobs_are_given_once_also_after_preemption() -> None:
    bench = Bench(num_blocks=8, block_size=2, max_num_sequences=2, max_step_tokens=4)
    old, young = sequence(1, num_prompt=4, max_output_tokens=9), sequence(2, num_prompt=6, max_output_tokens=9, num_prompt_logprobs=0)
    bench.add(old, young)
    given: list[int] = []
    while bench.batcher.has_work:
        plan = bench.batcher.schedule(0.0)
        outputs = bench.runner.step(plan.slices)
        for part, output in zip(plan.slices, outputs, strict=True):
            if part.num_prompt_logprobs is not None:
                targets = list(part.context)[part.start + 1 : part.start + 1 + len(part.token_ids)][: part.num_prompt - 1 - part.start]
                output.prompt_logprobs = [TokenLogprobs(target, -1.0) for target in targets]
        for event in bench.batcher.postprocess(plan, outputs).prompt_logprobs:
            given += [entry.token_id for entry in event.logprobs]
    assert bench.batcher.load().num_preemptions > 0
    assert given == sequence(2, num_prompt=6).token_ids[1:]


def test_context_full_ends_with_length() -> None:
    pool = BlockPool(64, 4)
    batcher = Batcher(BatchLimits(2, 16, 2, max_context_tokens=6), new_cache(pool), {EOS})
    batcher.add(Sequence(1, [5] * 5, 5, max_output_tokens=100))
    plan = batcher.schedule(0.0)
    events = batcher.postprocess(plan, [StepOutput(1, 7)])
    assert [ended.reason for ended in events.ended] == [EndReason.LENGTH]
    assert pool.num_used == 0


def test_deadline_drops_running_and_waiting_sequences() -> None:
    bench = Bench(max_num_sequences=1)
    bench.add(sequence(1, deadline_s=5.0, max_output_tokens=50), sequence(2, deadline_s=4.0), sequence(3))
    bench.step()
    bench.now_s = 5.0
    assert [part[0] for part in parts(bench.step())] == [3]
    assert (bench.ends[1].reason, bench.ends[2].reason) == (EndReason.DEADLINE, EndReason.DEADLINE)
    assert (len(bench.outputs[1]), bench.outputs[2]) == (1, [])


@pytest.mark.parametrize("num_steps", [0, 1, 2, 4])
def test_stop_in_any_state_frees_all_blocks(num_steps: int) -> None:
    bench = Bench(max_step_tokens=8)
    bench.add(sequence(1, num_prompt=12, max_output_tokens=9))
    for _ in range(num_steps):
        bench.step()
    bench.stop(1)
    assert bench.ends[1].reason is EndReason.CANCELLED
    assert (bench.pool.num_used, bench.batcher.has_work) == (0, False)
    bench.stop(1)


def test_error_of_one_sequence_ends_only_that_one() -> None:
    bench = Bench()
    bench.add(sequence(1), sequence(2))
    plan = bench.batcher.schedule(0.0)
    outputs = bench.runner.step(plan.slices)
    events = bench.batcher.postprocess(plan, [StepOutput(1, None, "not finite"), outputs[1]])
    assert [(ended.sequence_id, ended.reason) for ended in events.ended] == [(1, EndReason.NON_FINITE_LOGITS)]
    bench.outputs[2] += [token.token_id for token in events.sampled]
    bench.run()
    assert bench.outputs[2] == alone(sequence(2))


def test_failed_step_ends_its_sequences_and_leaves_the_waiting() -> None:
    bench = Bench(max_num_sequences=2)
    bench.add(sequence(1), sequence(2), sequence(3))
    bench.fail_step()
    assert {index: ended.reason for index, ended in bench.ends.items()} == {1: EndReason.STEP_FAILED, 2: EndReason.STEP_FAILED}
    bench.run()
    assert bench.outputs[3] == alone(sequence(3))


def test_kv_pressure_everybody_finishes_with_the_solo_output() -> None:
    def make(index: int) -> Sequence:
        return sequence(index, num_prompt=8 + index % 5, max_output_tokens=20 + index % 7, **(sampled(index) if index % 2 else {}))

    bench = Bench(num_blocks=16, block_size=4, max_num_sequences=6, max_step_tokens=12)
    bench.add(*(make(index) for index in range(1, 31)))
    bench.run()
    assert bench.batcher.load().num_preemptions > 0
    assert bench.outputs == {index: alone(make(index)) for index in range(1, 31)}
    assert {ended.reason for ended in bench.ends.values()} == {EndReason.LENGTH}
    assert sum(ended.num_discarded for ended in bench.ends.values()) > 0


def test_oldest_is_never_preempted() -> None:
    bench = Bench(num_blocks=10, block_size=4, max_num_sequences=8)
    bench.add(*(sequence(index, num_prompt=4, max_output_tokens=36) for index in range(1, 9)))
    bench.run()
    assert bench.batcher.load().num_preemptions > 0
    assert bench.ends[1].num_discarded == 0


def test_resumed_sequence_goes_on_as_if_it_had_never_stopped() -> None:
    whole = alone(sequence(1, max_output_tokens=12, **sampled(5)))
    first = sequence(1, max_output_tokens=12, **sampled(5))
    resumed = Sequence(1, [*first.token_ids, *whole[:7]], 5, 12, first.sampling, num_delivered=7)
    assert whole[:7] + alone(resumed) == whole


def test_load_counts_what_is_there() -> None:
    bench = Bench(max_num_sequences=1, max_step_tokens=4)
    bench.add(sequence(1, num_prompt=10), sequence(2, num_prompt=7))
    bench.step()
    load = bench.batcher.load()
    assert (load.num_running, load.num_waiting, load.num_waiting_tokens, load.num_used_blocks) == (1, 1, 6 + 7, 3)


@pytest.mark.parametrize("limits", [(0, 8, 1, 8), (9, 8, 1, 8), (4, 8, -1, 8), (4, 8, 1, 0)])
def test_limits_that_do_not_fit_together_are_refused(limits: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError):
        BatchLimits(*limits)
