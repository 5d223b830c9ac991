"""Float32 answers to two hundred prompts are token for token those of transformers, in batches, with prompts cut into chunks.

Every answer is checked in one forward pass of the reference over prompt and answer: as each token is the reference's likeliest one after
those before it, the answer is the one that the reference would have given.
"""

from collections.abc import Iterator

import pytest
import torch
from transformers import LlamaForCausalLM

from services.engine.runner import RunnerSettings
from services.engine.torch_runner.runner import TorchRunner
from tests.harness.questions import question_ids
from tests.harness.smollm import HOME, smollm
from tests.harness.step_driver import StepDriver

pytestmark = pytest.mark.timeout(300)
_MAX_TOKENS = 8
_GROUP = 25


@pytest.fixture(scope="module")
def reference() -> Iterator[LlamaForCausalLM]:
    torch.set_num_threads(1)
    yield LlamaForCausalLM.from_pretrained(smollm().path, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def runner() -> Iterator[TorchRunner]:
    version = smollm()
    runner = TorchRunner.load(RunnerSettings(model=version.name, version=version.version, home=HOME, num_blocks=512))
    yield runner
    runner.close()


def likeliest(reference: LlamaForCausalLM, prompt: list[int], answer: list[int]) -> list[int]:
    """What the reference would have said in place of each token of the answer."""
    with torch.inference_mode():
        logits = reference(torch.tensor([prompt + answer[:-1]]), logits_to_keep=len(answer)).logits[0]
    tokens: list[int] = logits.argmax(dim=1).tolist()
    return tokens


@pytest.mark.parametrize("first", range(0, 200, _GROUP))
def test_float32_answers_are_those_of_transformers(runner: TorchRunner, reference: LlamaForCausalLM, first: int) -> None:
    prompts = [list(ids) for ids in question_ids()[first : first + _GROUP]]
    answers = StepDriver(runner, budget=200, seed=first).generate(prompts, _MAX_TOKENS)
    assert len(answers) == _GROUP
    assert all(answers)
    for prompt, answer in zip(prompts, answers, strict=True):
        assert answer == likeliest(reference, prompt, answer)
