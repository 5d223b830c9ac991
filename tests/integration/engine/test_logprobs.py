"""Log-probabilities of both numeric runners: as transformers has them, however a prompt is cut, and at no cost to the answer."""

from collections.abc import Iterator
from itertools import pairwise

import pytest
import torch

from services.engine.cpu_runner.runner import CpuRunner
from services.engine.runner import ModelRunner, RunnerSettings, SamplingParams, SequenceSlice, TokenLogprobs
from services.engine.torch_runner.runner import TorchRunner
from tests.harness.closeness import reference_logits, text_ids
from tests.harness.smollm import HOME, smollm

pytestmark = pytest.mark.timeout(180)
_LENGTH = 150
_GREEDY = SamplingParams(temperature=0)
_TOLERANCE = {"torch": 2e-3, "cpu": 0.15}
"""Largest distance from transformers in float32, in nats; the CPU kernels round activations to 15 bits and keys and values to bfloat16."""


@pytest.fixture(scope="module", params=["torch", "cpu"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def runner(kind: str) -> Iterator[ModelRunner]:
    version = smollm()
    load = TorchRunner.load if kind == "torch" else CpuRunner.load
    runner = load(RunnerSettings(model=version.name, version=version.version, home=HOME, num_blocks=64))
    torch.set_num_threads(1)
    yield runner
    runner.close()


@pytest.fixture(scope="module")
def reference() -> torch.Tensor:
    return reference_logits(smollm(), text_ids()[:_LENGTH]).double().log_softmax(dim=1)


def score(runner: ModelRunner, cuts: list[int], wanted: int | None = 3, first_block: int = 0) -> tuple[int | None, list[TokenLogprobs]]:
    """The first token and the prompt's log-probabilities, the prompt cut into chunks and computed beside another sequence."""
    prompt = list(text_ids()[:_LENGTH])
    table = [first_block + (at * 7) % 10 for at in range(10)]
    found: list[TokenLogprobs] = []
    for begin, end in pairwise([0, *cuts, _LENGTH]):
        mate = SequenceSlice(1, [5, 6], 0, [50], _GREEDY, True, context=[5, 6], num_prompt=2, num_logprobs=1)
        asked = SequenceSlice(
            2, prompt[begin:end], begin, table, _GREEDY, end == _LENGTH, 0, 0, prompt, _LENGTH, num_prompt_logprobs=wanted
        )
        beside, output = runner.step([mate, asked])
        assert (beside.error, output.error) == (None, None)
        assert beside.logprobs is not None
        found += output.prompt_logprobs
    return output.token_id, found


def test_prompt_log_probabilities_are_those_of_transformers(runner: ModelRunner, kind: str, reference: torch.Tensor) -> None:
    _, found = score(runner, [])
    assert [each.token_id for each in found] == list(text_ids()[1:_LENGTH])
    wanted = reference[:-1].gather(1, torch.tensor(text_ids()[1:_LENGTH])[:, None])[:, 0].tolist()
    assert [each.logprob for each in found] == pytest.approx(wanted, abs=_TOLERANCE[kind])
    top = reference[:-1].topk(3)
    for at, each in enumerate(found):
        assert [logprob for _, logprob in each.top] == pytest.approx(top.values[at].tolist(), abs=_TOLERANCE[kind])
        assert len(each.top) == 3
    if kind == "torch":
        assert [[token for token, _ in each.top] for each in found] == top.indices.tolist()


@pytest.mark.parametrize("cuts", [[1], [63, 64, 65], [149], list(range(40, 150, 40))], ids=str)
def test_prompt_log_probabilities_and_the_answer_do_not_depend_on_cuts(runner: ModelRunner, cuts: list[int]) -> None:
    whole = score(runner, [])
    assert score(runner, cuts, first_block=20) == whole
    assert score(runner, cuts, wanted=None) == (whole[0], [])


def test_token_log_probabilities_of_both_answers_and_prompts_agree(runner: ModelRunner, kind: str) -> None:
    """A token that is generated and one that is scored as a prompt have the same log-probability, on the CPU kernels to the last bit."""
    prompt = list(text_ids()[:40])
    table = [1, 2, 3, 4]
    context = list(prompt)
    generated = []
    for position in range(12):
        start = 0 if position == 0 else len(context) - 1
        part = SequenceSlice(3, context[start:], start, table, _GREEDY, True, 0, position, context, 40, num_logprobs=2)
        (output,) = runner.step([part])
        assert output.token_id is not None and output.logprobs is not None
        context.append(output.token_id)
        generated.append(output.logprobs)
    scored = SequenceSlice(4, context, 0, [11, 12, 13, 14], _GREEDY, True, 0, 0, context, len(context), num_prompt_logprobs=2)
    found = list(runner.step([scored])[0].prompt_logprobs)[39:]
    assert [each.token_id for each in found] == [each.token_id for each in generated]
    assert [each.logprob for each in found] == pytest.approx([each.logprob for each in generated], abs=1e-4)
    if kind == "cpu":
        assert found == generated
