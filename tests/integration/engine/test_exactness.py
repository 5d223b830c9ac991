"""Greedy answers are token for token those of transformers in float32 on the same weights, alone and in a batch with chunked prefill."""

import gc
from collections.abc import Iterator
from functools import cache

import pytest
import torch
from tokenizers import Tokenizer
from transformers import GenerationConfig, LlamaForCausalLM

from services.engine.runner import RunnerSettings, SamplingParams
from services.engine.torch_runner.runner import TorchRunner
from services.kit.model_store import TOKENIZER
from tests.harness.smollm import HOME, smollm
from tests.harness.step_driver import StepDriver

pytestmark = pytest.mark.timeout(180)
_MAX_TOKENS = 12


def _chat(text: str) -> str:
    return f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"


PROMPTS = [
    _chat("What is the capital of Poland?"),
    _chat("Name three fruits that are red."),
    _chat("Write a Python function that returns the n-th Fibonacci number."),
    _chat("Translate to French: the ferry leaves at noon."),
    _chat("Why is the sky dark at night? Answer in one sentence."),
    _chat("Continue the list: 2, 4, 8, 16,"),
    _chat("Kto napisał 'Solaris'? 🚀"),
    _chat("日本の首都はどこですか。"),
    _chat(""),
    "<|im_start|>system\nAnswer like a pirate.<|im_end|>\n" + _chat("Where do you keep your gold?"),
    _chat("Hello") + "Hi! How can I help?<|im_end|>\n" + _chat("What did I say first?"),
    "Once upon a time",
    "def quicksort(items):\n    if len(items) <= 1:\n        return items\n",
    "SELECT name, COUNT(*) FROM orders WHERE",
    '{"name": "Ada", "born": 1815, "fields": [',
    "The table of squares: 1 4 9 16 25",
    "x",
    "\n\n\n",
    "Résumé: l'été à Besançon était très",
    "A long report follows. "
    + " ".join(f"Item {n} weighs {n * n % 97} kg and costs {n * 7 % 31} coins." for n in range(40))
    + " In total,",
]


@pytest.fixture(scope="module")
def reference() -> Iterator[LlamaForCausalLM]:
    torch.set_num_threads(1)
    model = LlamaForCausalLM.from_pretrained(smollm().path, dtype=torch.float32).eval()
    yield model
    del model
    gc.collect()


@pytest.fixture(scope="module")
def runner() -> Iterator[TorchRunner]:
    version = smollm()
    runner = TorchRunner.load(RunnerSettings(model=version.name, version=version.version, home=HOME, num_blocks=256))
    yield runner
    runner.close()


@cache
def prompt_ids(index: int) -> tuple[int, ...]:
    tokenizer = Tokenizer.from_str(smollm().read(TOKENIZER).decode())
    return tuple(tokenizer.encode(PROMPTS[index], add_special_tokens=False).ids)


@pytest.fixture(scope="module")
def expected(reference: LlamaForCausalLM) -> Iterator["Expected"]:
    yield Expected(reference)


class Expected:
    """The reference's answers, each computed once."""

    def __init__(self, model: LlamaForCausalLM) -> None:
        self._model = model
        self._config = GenerationConfig(
            do_sample=False, max_new_tokens=_MAX_TOKENS, eos_token_id=sorted(smollm().eos_token_ids), pad_token_id=2
        )
        self._answers: dict[int, list[int]] = {}

    def answer(self, index: int) -> list[int]:
        if index not in self._answers:
            ids = torch.tensor([prompt_ids(index)])
            with torch.inference_mode():
                found = self._model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=self._config)
            self._answers[index] = found[0, ids.shape[1] :].tolist()
        return self._answers[index]


@pytest.mark.parametrize("index", range(len(PROMPTS)))
def test_greedy_alone_is_identical_to_the_reference(runner: TorchRunner, expected: Expected, index: int) -> None:
    assert StepDriver(runner, budget=4096).generate([list(prompt_ids(index))], _MAX_TOKENS) == [expected.answer(index)]


@pytest.mark.parametrize(("budget", "indices"), [(48, range(20)), (7, range(8, 13))])
def test_greedy_batched_with_chunked_prefill_is_identical_to_the_reference(
    runner: TorchRunner, expected: Expected, budget: int, indices: range
) -> None:
    answers = StepDriver(runner, budget, seed=budget).generate([list(prompt_ids(index)) for index in indices], _MAX_TOKENS)
    assert answers == [expected.answer(index) for index in indices]


def test_answer_resumed_at_any_token_goes_on_as_if_never_interrupted(runner: TorchRunner) -> None:
    """A resumed sequence brings its delivered tokens as prompt and its random stream by position; also greedy, also beside others."""
    prompt = list(prompt_ids(2))
    for sampling in (SamplingParams(temperature=0), SamplingParams(temperature=0.8, top_p=0.95, seed=11)):
        whole = StepDriver(runner, budget=4096).generate([prompt], 10, [sampling])[0]
        for delivered in (1, 7):
            resumed = StepDriver(runner, budget=32, seed=delivered).resume(prompt, whole[:delivered], 10, sampling)
            assert resumed == whole


def test_known_answer_shows_that_the_weights_are_understood(runner: TorchRunner) -> None:
    """Identity with the reference would hold for scrambled weights too; sense does not."""
    tokenizer = Tokenizer.from_str(smollm().read(TOKENIZER).decode())
    ids = tokenizer.encode(_chat("What is the capital of France?"), add_special_tokens=False).ids
    answer = StepDriver(runner, budget=4096).generate([ids], _MAX_TOKENS)[0]
    assert "Paris" in tokenizer.decode(answer)
