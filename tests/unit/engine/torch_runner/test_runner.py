"""The torch runner keeps the contract of `ModelRunner`: order, isolation of faults, limits, honest info."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.numpy import load_file, save_file

from services.engine.model.importer import import_model
from services.engine.runner import RunnerSettings, SamplingParams, SequenceSlice
from services.engine.torch_runner.runner import TorchRunner
from services.kit.errors import ConfigError
from services.kit.model_store import WEIGHTS, ModelCorruptError, ModelNotFoundError
from tests.harness.tiny_gguf import TinyGguf

_GREEDY = SamplingParams(temperature=0)
_POISON = 200


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> RunnerSettings:
    home = tmp_path_factory.mktemp("tiny")
    import_model(TinyGguf().write(home / "tiny.gguf"), "tiny", home)
    return RunnerSettings(model="tiny", home=home, num_blocks=32)


@pytest.fixture
def runner(settings: RunnerSettings) -> TorchRunner:
    return TorchRunner.load(settings)


def part(sequence_id: int, tokens: list[int], table: list[int], start: int = 0, samples: bool = True) -> SequenceSlice:
    return SequenceSlice(sequence_id, tokens, start, table, _GREEDY, samples)


def test_info_states_limits_and_the_numeric_path(runner: TorchRunner) -> None:
    info = runner.info
    assert (info.name, info.vocab_size, info.max_context_tokens, info.block_size, info.num_blocks) == ("tiny", 263, 512, 16, 32)
    assert info.eos_token_ids == {2}
    assert info.dtype == "float32"
    assert "weights as stored" in info.quality
    assert "bit-independent of batch mates" in info.quality


def test_info_of_a_rounded_type_says_so(settings: RunnerSettings) -> None:
    info = TorchRunner.load(replace(settings, dtype="bfloat16")).info
    assert info.dtype == "bfloat16"
    assert "rounded" in info.quality


def test_step_keeps_the_order_and_samples_only_where_asked(runner: TorchRunner) -> None:
    outputs = runner.step([part(5, [7, 8], [0]), part(3, [9], [1], samples=False), part(4, [7, 8], [2])])
    assert [output.sequence_id for output in outputs] == [5, 3, 4]
    assert [output.token_id is None for output in outputs] == [False, True, False]
    assert outputs[0].token_id == outputs[2].token_id
    assert all(output.error is None for output in outputs)
    assert runner.step([]) == []


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (part(1, [263], [0]), "outside the vocabulary"),
        (part(1, [-1], [0]), "outside the vocabulary"),
        (part(1, [], [0]), "outside the vocabulary"),
        (part(1, [5] * 17, [0]), "does not cover"),
        (part(1, [5], [32]), "does not cover"),
        (part(1, [5], [-1]), "does not cover"),
        (part(1, [5], list(range(32)) * 2, start=512), "longer than the model's context"),
    ],
)
def test_step_one_impossible_slice_ends_alone(runner: TorchRunner, broken: SequenceSlice, reason: str) -> None:
    good = part(2, [7, 8], [4])
    wanted = runner.step([good])[0].token_id
    outputs = runner.step([broken, good])
    assert outputs[0].token_id is None
    assert outputs[0].error is not None
    assert reason in outputs[0].error
    assert (outputs[1].token_id, outputs[1].error) == (wanted, None)


def test_step_logits_that_are_not_finite_end_one_sequence(settings: RunnerSettings, tmp_path: Path) -> None:
    """One row of the embedding is NaN: whoever uses that token breaks, and its blocks do not break the next owner."""
    import_model(_poisoned(tmp_path), "tiny", tmp_path)
    runner = TorchRunner.load(replace(settings, home=tmp_path))
    good = part(2, [7, 8], [4])
    wanted = runner.step([good])[0].token_id
    assert wanted is not None
    outputs = runner.step([part(1, [_POISON, 7], [0]), good])
    assert (outputs[0].token_id, outputs[0].error) == (None, "the model's logits are not finite")
    assert (outputs[1].token_id, outputs[1].error) == (wanted, None)
    assert runner.step([part(3, [7, 8], [0])])[0].token_id == wanted


def _poisoned(folder: Path) -> Path:
    """A model with an output head of its own, so that the head stays finite while one row of the input table is not."""
    tiny = TinyGguf(tied=False)
    source = tiny.write(folder / "tiny.gguf")
    content = bytearray(source.read_bytes())
    at = content.index(tiny.weights["token_embd.weight"][_POISON].tobytes())
    content[at : at + 4] = b"\x00\x00\xc0\x7f"
    source.write_bytes(content)
    return source


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda settings: replace(settings, dtype="float8"), "dtype 'float8' is unknown"),
        (lambda settings: replace(settings, kv_dtype="int8"), "kv_dtype 'int8' is not for the torch runner"),
        (lambda settings: replace(settings, device="tpu"), "device 'tpu' is not supported"),
        (lambda settings: replace(settings, device="cuda:99"), "torch sees"),
        (lambda settings: replace(settings, block_size=24), "does not divide"),
    ],
)
def test_load_settings_that_cannot_serve_are_config_errors(
    settings: RunnerSettings, change: Callable[[RunnerSettings], RunnerSettings], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        TorchRunner.load(change(settings))


def test_load_unknown_model_or_altered_weights_is_a_typed_error(settings: RunnerSettings, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError):
        TorchRunner.load(replace(settings, model="other"))
    version = import_model(TinyGguf().write(tmp_path / "tiny.gguf"), "tiny", tmp_path)
    weights = load_file(version.file(WEIGHTS))
    weights["model.norm.weight"] = weights["model.norm.weight"] * 1.5
    save_file(weights, version.file(WEIGHTS))
    with pytest.raises(ModelCorruptError, match=WEIGHTS):
        TorchRunner.load(replace(settings, home=tmp_path))


def test_close_gives_back_and_may_be_called_twice(runner: TorchRunner) -> None:
    runner.warm_up()
    runner.close()
    runner.close()
    with pytest.raises(RuntimeError, match="closed"):
        runner.step([part(1, [5], [0])])


def test_step_works_on_another_thread_than_load(runner: TorchRunner) -> None:
    """Gradient mode belongs to a thread in torch; the step must not depend on who loaded."""
    found: list[bool] = []

    def run() -> None:
        found.append(torch.is_grad_enabled() and runner.step([part(1, [5], [0])])[0].token_id is not None)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(timeout=30)
    assert found == [True]


def test_copied_blocks_give_what_their_originals_give(settings: RunnerSettings) -> None:
    """A sequence that goes on in copies, while the originals are overwritten, answers as one that never moved."""
    runner = TorchRunner.load(settings)
    tokens = [(position * 37) % 250 + 3 for position in range(40)]
    blocks = -(-len(tokens) // runner.info.block_size)
    table, copies, elsewhere = (list(range(first, first + blocks)) for first in (0, blocks, 2 * blocks))
    wanted = runner.step([part(1, tokens, elsewhere)])[0].token_id
    runner.step([part(1, tokens[:-2], table, samples=False)])
    runner.copy_blocks(list(zip(table, copies, strict=True)))
    runner.step([part(2, list(reversed(tokens)), table)])
    assert runner.step([part(1, tokens[-2:], copies, start=len(tokens) - 2)])[0].token_id == wanted
