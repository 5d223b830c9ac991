"""The cpu runner keeps the contract of `ModelRunner`, on every build of the kernels that this machine runs."""

import shutil
import threading
from dataclasses import replace
from pathlib import Path

import gguf
import pytest
import torch
from safetensors.numpy import load_file, save_file

from services.engine.cpu_runner.instruction_set import InstructionSet, NoKernelsError
from services.engine.cpu_runner.runner import CpuRunner
from services.engine.model.importer import ImportOptions, import_model
from services.engine.runner import RunnerSettings, SamplingParams, SequenceSlice
from services.engine.runner_registry import make_runner
from services.engine.torch_runner.runner import TorchRunner
from services.kit.errors import ConfigError
from services.kit.model_store import WEIGHTS, ModelCorruptError, ModelNotFoundError, ModelStore
from tests.harness.cpu_kernels import LEVELS, share_kernels
from tests.harness.quantised_llama import last_logits
from tests.harness.tiny_gguf import TinyGguf

pytestmark = pytest.mark.timeout(180)
_GREEDY = SamplingParams(temperature=0)
_POISON = 200


@pytest.fixture(params=LEVELS, ids=str, scope="module")
def level(request: pytest.FixtureRequest) -> InstructionSet:
    chosen: InstructionSet = request.param
    return chosen


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> RunnerSettings:
    home = share_kernels(tmp_path_factory.mktemp("tiny"))
    import_model(TinyGguf(matrix_type=gguf.GGMLQuantizationType.Q8_0).write(home / "tiny.gguf"), "tiny", home)
    return RunnerSettings(model="tiny", home=home, num_blocks=32)


@pytest.fixture
def runner(settings: RunnerSettings, level: InstructionSet) -> CpuRunner:
    return CpuRunner.load(settings, level)


def part(sequence_id: int, tokens: list[int], table: list[int], start: int = 0, samples: bool = True) -> SequenceSlice:
    return SequenceSlice(sequence_id, tokens, start, table, _GREEDY, samples)


def test_info_states_limits_and_the_numeric_path(runner: CpuRunner, level: InstructionSet) -> None:
    info = runner.info
    assert (info.name, info.vocab_size, info.max_context_tokens, info.block_size, info.num_blocks) == ("tiny", 263, 512, 16, 32)
    assert info.eos_token_ids == {2}
    assert info.dtype == "q8"
    for words in (level.display_name, "weights as stored", "activations 15 bits", "KV cache bfloat16", "rarely differ from float32"):
        assert words in info.quality


def test_info_of_coarse_activations_says_so(settings: RunnerSettings) -> None:
    quality = CpuRunner.load(replace(settings, dtype="bfloat16")).info.quality
    assert "activations 8 bits" in quality
    assert "answers differ from float32" in quality


def test_info_of_an_int8_cache_says_so(settings: RunnerSettings) -> None:
    quality = CpuRunner.load(replace(settings, kv_dtype="int8")).info.quality
    assert "KV cache int8 with a scale per token and head" in quality
    assert "answers differ from float32" in quality


def test_the_card_says_which_numbers_serve_unless_the_operator_does(settings: RunnerSettings, tmp_path: Path) -> None:
    options = ImportOptions(numerics={"cpu": {"activations": 8, "kv": "int8"}})
    import_model(TinyGguf().write(tmp_path / "tiny.gguf"), "tiny", share_kernels(tmp_path), options)
    settings = replace(settings, home=tmp_path)
    said = CpuRunner.load(settings).info.quality
    assert "activations 8 bits" in said
    assert "KV cache int8" in said
    wins = CpuRunner.load(replace(settings, dtype="float32", kv_dtype="bfloat16")).info.quality
    assert "activations 15 bits" in wins
    assert "KV cache bfloat16" in wins


def test_info_of_rounded_weights_says_so(settings: RunnerSettings, tmp_path: Path) -> None:
    import_model(TinyGguf().write(tmp_path / "tiny.gguf"), "tiny", share_kernels(tmp_path))
    quality = CpuRunner.load(replace(settings, home=tmp_path)).info.quality
    assert "9 of 9 weight matrices rounded to int8" in quality
    assert "answers differ from float32" in quality


@pytest.mark.parametrize(("dtype", "largest", "bound"), [("float32", 127 * 128 + 63, 0.003), ("bfloat16", 127, 0.02)])
@pytest.mark.parametrize("kv_dtype", ["bfloat16", "int8"])
@pytest.mark.parametrize("kind", ["F32", "Q4_1", "Q8_0"])
@pytest.mark.parametrize(("heads", "kv_heads", "tied"), [(4, 2, True), (4, 4, False), (4, 1, True), (2, 1, True)])
def test_forward_computes_a_llama_of_every_format_and_shape(
    tmp_path: Path,
    level: InstructionSet,
    kind: str,
    heads: int,
    kv_heads: int,
    tied: bool,
    dtype: str,
    largest: int,
    bound: float,
    kv_dtype: str,
) -> None:
    """300 positions in two chunks, blocks in disorder, against a plain forward pass that rounds alike.

    Both agree to seven digits until a value lies so near to a half that it is rounded the other way: then to some steps of rounding.
    """
    tiny = TinyGguf(matrix_type=gguf.GGMLQuantizationType[kind], num_heads=heads, num_kv_heads=kv_heads, tied=tied)
    import_model(tiny.write(tmp_path / "tiny.gguf"), "tiny", share_kernels(tmp_path))
    settings = RunnerSettings(model="tiny", home=tmp_path, num_blocks=32, dtype=dtype, kv_dtype=kv_dtype)
    tokens = [(position * 37 + position // 7) % 250 for position in range(300)]
    table = [(index * 5 + 3) % 32 for index in range(32)]
    runner = CpuRunner.load(settings, level)
    runner.step([part(1, tokens[:41], table, samples=False)])
    found, best = runner.forward([part(1, tokens[41:], table, start=41)])
    wanted = last_logits(ModelStore(tmp_path).get("tiny"), tokens, weights_rounded=kind == "F32", largest=largest, kv=kv_dtype)
    found = [torch.from_numpy(row) for row in found]
    assert best == [int(found[0].argmax())]
    assert float((found[0] - wanted).norm() / wanted.norm()) < (bound if kv_dtype == "bfloat16" else 2 * bound)


def test_step_keeps_the_order_and_samples_only_where_asked(runner: CpuRunner) -> None:
    outputs = runner.step([part(5, [7, 8], [0]), part(3, [9], [1], samples=False), part(4, [7, 8], [2])])
    assert [output.sequence_id for output in outputs] == [5, 3, 4]
    assert [output.token_id is None for output in outputs] == [False, True, False]
    assert outputs[0].token_id == outputs[2].token_id
    assert all(output.error is None for output in outputs)
    assert runner.step([]) == []
    assert runner.step([part(6, [9], [1], samples=False)])[0].token_id is None


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
def test_step_one_impossible_slice_ends_alone(runner: CpuRunner, broken: SequenceSlice, reason: str) -> None:
    good = part(2, [7, 8], [4])
    wanted = runner.step([good])[0].token_id
    outputs = runner.step([broken, good])
    assert outputs[0].token_id is None
    assert outputs[0].error is not None
    assert reason in outputs[0].error
    assert (outputs[1].token_id, outputs[1].error) == (wanted, None)


def test_step_logits_that_are_not_finite_end_one_sequence(settings: RunnerSettings, level: InstructionSet, tmp_path: Path) -> None:
    """One row of the embedding is NaN: whoever uses that token breaks, and its blocks do not break the next owner."""
    import_model(_poisoned(tmp_path), "tiny", share_kernels(tmp_path))
    runner = CpuRunner.load(replace(settings, home=tmp_path), level)
    good = part(2, [7, 8], [4])
    wanted = runner.step([good])[0].token_id
    assert wanted is not None
    drawn = SequenceSlice(3, [_POISON], 0, [1], SamplingParams(temperature=1.0), samples=True)
    outputs = runner.step([part(1, [_POISON, 7], [0]), good, drawn])
    assert [output.token_id for output in outputs] == [None, wanted, None]
    assert [output.error is None for output in outputs] == [False, True, False]
    assert outputs[0].error == "the model's logits are not finite"
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


def test_load_settings_that_cannot_serve_are_refused(settings: RunnerSettings) -> None:
    with pytest.raises(ConfigError, match="device 'cuda' is not supported"):
        CpuRunner.load(replace(settings, device="cuda"))
    with pytest.raises(ConfigError, match="dtype 'float8' is unknown"):
        CpuRunner.load(replace(settings, dtype="float8"))
    with pytest.raises(ConfigError, match="kv_dtype 'int4' is unknown; known: bfloat16, int8"):
        CpuRunner.load(replace(settings, kv_dtype="int4"))
    with pytest.raises(NoKernelsError, match="block size 8 is not a multiple of 16"):
        CpuRunner.load(replace(settings, block_size=8))


def test_load_unknown_model_or_altered_weights_is_a_typed_error(settings: RunnerSettings, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError):
        CpuRunner.load(replace(settings, model="other"))
    version = import_model(TinyGguf().write(tmp_path / "tiny.gguf"), "tiny", share_kernels(tmp_path))
    weights = load_file(version.file(WEIGHTS))
    weights["model.norm.weight"] = weights["model.norm.weight"] * 1.5
    save_file(weights, version.file(WEIGHTS))
    with pytest.raises(ModelCorruptError, match=WEIGHTS):
        CpuRunner.load(replace(settings, home=tmp_path))


def test_close_gives_back_and_may_be_called_twice(runner: CpuRunner) -> None:
    runner.warm_up()
    runner.close()
    runner.close()
    with pytest.raises(RuntimeError, match="closed"):
        runner.step([part(1, [5], [0])])


def test_step_works_on_another_thread_than_load_and_with_more_threads(settings: RunnerSettings, level: InstructionSet) -> None:
    slices = [part(index, list(range(3, 30 + index)), [2 * index, 2 * index + 1]) for index in range(5)]
    wanted = [output.token_id for output in CpuRunner.load(settings, level).step(slices)]
    runner = CpuRunner.load(replace(settings, threads=3), level)
    found: list[list[int | None]] = []
    thread = threading.Thread(target=lambda: found.extend([output.token_id for output in runner.step(slices)] for _ in range(20)))
    thread.start()
    thread.join(timeout=30)
    runner.close()
    assert found == [wanted] * 20
    torch.set_num_threads(1)


@pytest.mark.parametrize("name", ["cpu", "auto"])
def test_make_runner_without_a_compiler_is_torch_and_says_why(
    settings: RunnerSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    shutil.copytree(settings.home / "models", tmp_path / "models")
    monkeypatch.setenv("CXX", "no-such-compiler")
    runner = make_runner(name, replace(settings, home=tmp_path))
    assert isinstance(runner, TorchRunner)
    for words in ("slow", "no-such-compiler of CXX was not found", "to mend: install g++", "float32 on cpu"):
        assert words in runner.info.quality
    assert "to mend: install g++" in caplog.text


@pytest.mark.parametrize("name", ["cpu", "auto"])
def test_make_runner_with_a_compiler_is_native(settings: RunnerSettings, name: str) -> None:
    assert isinstance(make_runner(name, settings), CpuRunner)
