"""An answer depends on its request alone: not on batch mates, on when it came, on cut prompts, drafts, preemption or cached blocks, nor on
how much of it another replica had made before. On the CPU kernels for fifty prompts; the other paths have some of them.
"""

from collections.abc import Iterator
from random import Random

import pytest
import torch

from services.engine.cpu_runner.runner import CpuRunner
from services.engine.runner import ModelRunner, RunnerSettings, SamplingParams
from services.engine.sequence import EndReason, Sequence
from services.engine.torch_runner.runner import TorchRunner
from tests.harness.batching import Bench, Rehearsed
from tests.harness.questions import question_ids
from tests.harness.smollm import HOME, smollm

pytestmark = pytest.mark.timeout(300)
_BLOCKS = 512
_MAX_TOKENS = 12
_KINDS = (
    SamplingParams(temperature=0),
    SamplingParams(temperature=0.9, top_p=0.95, repetition_penalty=1.2),
    SamplingParams(temperature=0, frequency_penalty=0.7, presence_penalty=0.4),
    SamplingParams(temperature=1.2, min_p=0.02, top_k=60, frequency_penalty=0.5, logit_bias=((28, 1.5), (260, -3.0))),
    SamplingParams(temperature=1.0),
)


@pytest.fixture(scope="module", params=["cpu-float32", "cpu-bfloat16", "torch-float32"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def load(kind: str) -> ModelRunner:
    version = smollm()
    name, dtype = kind.split("-")
    factory = CpuRunner.load if name == "cpu" else TorchRunner.load
    runner = factory(RunnerSettings(model=version.name, version=version.version, home=HOME, num_blocks=_BLOCKS, dtype=dtype))
    torch.set_num_threads(1)
    return runner


@pytest.fixture(scope="module")
def runner(kind: str) -> Iterator[ModelRunner]:
    runner = load(kind)
    yield runner
    runner.close()


@pytest.fixture(scope="module")
def indexes(kind: str) -> list[int]:
    """Prompts, by their index, of at most 90 tokens."""
    count = 50 if kind == "cpu-float32" else 10
    short = [index for index, ids in enumerate(question_ids()) if len(ids) <= 90]
    return short[:: len(short) // count][:count]


def make(index: int, sequence_id: int = 0, delivered: list[int] | None = None) -> Sequence:
    prompt = question_ids()[index]
    given = delivered or []
    kind = _KINDS[index % len(_KINDS)]
    sampling = SamplingParams(**{name: getattr(kind, name) for name in SamplingParams.__slots__ if name != "seed"}, seed=1000 + index)
    return Sequence(
        sequence_id=sequence_id or index + 1,
        token_ids=[*prompt, *given],
        num_prompt=len(prompt),
        max_output_tokens=_MAX_TOKENS,
        sampling=sampling,
        num_delivered=len(given),
        choice=index % 3,
        ignore_eos=True,
    )


def bench(runner: ModelRunner, num_sequences: int, num_tokens: int, num_blocks: int = _BLOCKS) -> Bench:
    """As a replica is set up: with drafts where the runner can verify them."""
    max_drafts = 7 if runner.info.can_verify_drafts else 0
    return Bench(num_blocks, 16, num_sequences, max_step_tokens=num_tokens, max_num_waiting=1000, runner=runner, max_drafts=max_drafts)


def by_index(used: Bench, indexes: list[int], first_id: int = 1) -> list[list[int]]:
    assert {ended.reason for ended in used.ends.values()} == {EndReason.LENGTH}
    return [used.outputs[first_id + index] for index in indexes]


@pytest.fixture(scope="module")
def answers(runner: ModelRunner, indexes: list[int]) -> list[list[int]]:
    """Every answer when nobody else is there and nothing is cached."""
    found = []
    for index in indexes:
        alone = Bench(_BLOCKS, 16, 1, max_step_tokens=512, runner=runner)
        alone.add(make(index))
        alone.run()
        found += by_index(alone, [index])
    assert len({tuple(answer) for answer in found}) > 0.9 * len(indexes)
    return found


@pytest.mark.parametrize(("num_sequences", "num_tokens"), [(2, 512), (9, 33), (32, 64)])
def test_answers_in_batches_are_those_given_alone(
    runner: ModelRunner, indexes: list[int], answers: list[list[int]], num_sequences: int, num_tokens: int
) -> None:
    together = bench(runner, num_sequences, num_tokens)
    together.add(*(make(index) for index in indexes))
    together.run()
    assert by_index(together, indexes) == answers


def test_answers_of_random_arrivals_are_those_given_alone(runner: ModelRunner, indexes: list[int], answers: list[list[int]]) -> None:
    random = Random(5)
    waiting = random.sample(indexes, len(indexes))
    used = bench(runner, 16, 100)
    while waiting or used.batcher.has_work:
        for _ in range(min(len(waiting), random.choice((0, 0, 0, 1, 5)))):
            used.add(make(waiting.pop()))
        if used.batcher.has_work:
            used.step()
    assert by_index(used, indexes) == answers


@pytest.mark.parametrize(("num_sequences", "num_blocks"), [(1, _BLOCKS), (16, 24)])
def test_answers_with_drafts_are_those_without(
    runner: ModelRunner, indexes: list[int], answers: list[list[int]], num_sequences: int, num_blocks: int
) -> None:
    random = Random(6)
    used = bench(runner, num_sequences, 128, num_blocks)
    for index, answer in zip(indexes, answers, strict=True):
        subject = make(index)
        subject.drafter = Rehearsed(answer, subject.num_prompt, lambda: random.random() < 0.2)
        used.add(subject)
    used.run()
    assert by_index(used, indexes) == answers
    assert (used.num_accepted > len(indexes) // 2) == runner.info.can_verify_drafts


def test_answers_under_preemption_are_those_given_alone(runner: ModelRunner, indexes: list[int], answers: list[list[int]]) -> None:
    tight = bench(runner, 16, 64, num_blocks=24)
    tight.add(*(make(index) for index in indexes))
    tight.run()
    assert tight.batcher.load().num_preemptions > 0
    assert by_index(tight, indexes) == answers


def test_answers_from_cached_blocks_are_those_given_alone(runner: ModelRunner, indexes: list[int], answers: list[list[int]]) -> None:
    used = bench(runner, 8, 128)
    for first_id in (1, 1001):
        used.add(*(make(index, first_id + index) for index in indexes))
        used.run()
        assert by_index(used, indexes, first_id) == answers
    assert sum(used.num_cached[1001 + index] for index in indexes) > 16


def test_answers_resumed_elsewhere_go_on_as_if_never_interrupted(runner: ModelRunner, indexes: list[int], answers: list[list[int]]) -> None:
    cuts = [1 + index % (_MAX_TOKENS - 1) for index in indexes]
    used = bench(runner, 8, 96)
    used.add(*(make(index, delivered=answer[:cut]) for index, answer, cut in zip(indexes, answers, cuts, strict=True)))
    used.run()
    assert by_index(used, indexes) == [answer[cut:] for answer, cut in zip(answers, cuts, strict=True)]


def test_answers_of_a_second_load_are_the_same(kind: str, indexes: list[int], answers: list[list[int]]) -> None:
    again = load(kind)
    used = bench(again, 3, 200)
    used.add(*(make(index) for index in indexes[:4]))
    used.run()
    assert by_index(used, indexes[:4]) == answers[:4]
    again.close()
