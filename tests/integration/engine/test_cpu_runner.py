"""The cpu runner on the real small model: tokens depend on the request alone, and the numbers stay close to float32."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from torch import Tensor

from services.engine.cpu_runner.runner import CpuRunner
from services.engine.model.importer import import_model
from services.engine.runner import RunnerSettings, SamplingParams
from services.engine.sequence import EndReason, Sequence
from services.kit.model_store import TOKENIZER
from tests.harness.batching import Bench
from tests.harness.closeness import closeness, cpu_logits, reference_logits, text_ids
from tests.harness.cpu_kernels import share_kernels
from tests.harness.prompts import PROMPTS, prompt_ids
from tests.harness.smollm import HOME, smollm
from tests.harness.step_driver import StepDriver
from tests.harness.tiny_gguf import TinyGguf

pytestmark = pytest.mark.timeout(180)
_MAX_TOKENS = 10


def load(dtype: str, kv_dtype: str = "bfloat16") -> CpuRunner:
    version = smollm()
    torch.set_num_threads(1)
    settings = RunnerSettings(version.name, version.version, HOME, num_blocks=256, dtype=dtype, kv_dtype=kv_dtype)
    return CpuRunner.load(settings)


@pytest.fixture(params=["float32", "bfloat16"], scope="module")
def dtype(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def runner(dtype: str) -> Iterator[CpuRunner]:
    """The best build for this machine."""
    yield (loaded := load(dtype))
    loaded.close()


@pytest.fixture(scope="module")
def reference() -> Iterator[Tensor]:
    yield reference_logits(smollm(), text_ids())


def sampling(index: int) -> SamplingParams:
    """Greedy for every other prompt, else drawn with a seed of its own."""
    return SamplingParams(temperature=0) if index % 2 else SamplingParams(temperature=0.8, top_p=0.95, top_k=40 * (index % 3), seed=index)


def alone(runner: CpuRunner, index: int) -> list[int]:
    return StepDriver(runner, budget=4096).generate([list(prompt_ids()[index])], _MAX_TOKENS, [sampling(index)])[0]


@pytest.fixture(scope="module")
def answers(runner: CpuRunner) -> Iterator[list[list[int]]]:
    """Every prompt's answer when nobody else is there."""
    yield [alone(runner, index) for index in range(len(PROMPTS))]


@pytest.mark.parametrize("budget", [48, 7])
def test_answers_beside_others_and_with_cut_prompts_are_those_given_alone(runner: CpuRunner, answers: list[list[int]], budget: int) -> None:
    prompts = [list(ids) for ids in prompt_ids()]
    together = StepDriver(runner, budget, seed=budget).generate(prompts, _MAX_TOKENS, [sampling(index) for index in range(len(prompts))])
    assert together == answers
    assert len({tuple(answer) for answer in answers}) > 18


def test_answers_of_a_second_load_are_the_same(dtype: str, answers: list[list[int]]) -> None:
    again = load(dtype)
    assert [alone(again, index) for index in (0, 11)] == [answers[0], answers[11]]
    again.close()


@pytest.mark.parametrize("index", range(0, 24, 5))
def test_answer_resumed_at_any_token_goes_on_as_if_never_interrupted(runner: CpuRunner, answers: list[list[int]], index: int) -> None:
    for delivered in (1, 7):
        head = answers[index][:delivered]
        assert (
            StepDriver(runner, budget=32, seed=delivered).resume(list(prompt_ids()[index]), head, _MAX_TOKENS, sampling(index))
            == answers[index]
        )


def test_kv_pressure_preemption_and_batch_mates_change_no_token(tmp_path: Path) -> None:
    version = import_model(TinyGguf().write(tmp_path / "tiny.gguf"), "tiny", share_kernels(tmp_path))
    runner = CpuRunner.load(RunnerSettings(version.name, version.version, tmp_path, block_size=16, num_blocks=12))

    def run(indexes: list[int]) -> Bench:
        bench = Bench(12, 16, max_num_sequences=6, max_step_tokens=24, runner=runner)
        for index in indexes:
            prompt = [(index * 17 + position * 5) % 200 + 3 for position in range(10 + 9 * (index % 4))]
            bench.add(Sequence(index, prompt, len(prompt), 30 + index % 5, sampling(index), ignore_eos=True))
        bench.run()
        return bench

    together = run(list(range(1, 13)))
    assert together.batcher.load().num_preemptions > 0
    assert {ended.reason for ended in together.ends.values()} == {EndReason.LENGTH}
    for index in range(1, 13):
        assert together.outputs[index] == run([index]).outputs[index]


_LIMITS = {"float32": (0.002, 0.99, 0.0001), "bfloat16": (0.015, 0.96, 0.005)}


def test_numbers_are_close_to_float32(runner: CpuRunner, reference: Tensor, dtype: str) -> None:
    """The figures that docs/engine.md quotes, with room for another compiler."""
    drift, same, divergence = _LIMITS[dtype]
    found = closeness(reference, cpu_logits(runner, text_ids()), text_ids())
    print(found)
    assert found.num_tokens > 500
    assert abs(found.perplexity / found.reference_perplexity - 1) < drift
    assert found.same_top_1 > same
    assert found.mean_divergence < divergence


def test_numbers_with_an_int8_cache_are_close_to_float32(reference: Tensor) -> None:
    runner = load("float32", kv_dtype="int8")
    found = closeness(reference, cpu_logits(runner, text_ids()), text_ids())
    runner.close()
    print(found)
    assert abs(found.perplexity / found.reference_perplexity - 1) < 0.005
    assert found.same_top_1 > 0.97
    assert found.mean_divergence < 0.002


def test_weights_of_the_file_are_served_as_stored(runner: CpuRunner) -> None:
    assert runner.info.dtype == "q4+q8"
    assert "weights as stored" in runner.info.quality


def test_known_answer_shows_that_the_weights_are_understood(runner: CpuRunner) -> None:
    tokenizer = Tokenizer.from_str(smollm().read(TOKENIZER).decode())
    ids = tokenizer.encode(
        "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n", add_special_tokens=False
    ).ids
    assert "Paris" in tokenizer.decode(StepDriver(runner, budget=4096).generate([ids], _MAX_TOKENS)[0])
