"""The self-check says in one line what is wrong with a model folder, whatever it is; runners refuse the same by typed errors."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import pytest

from services.engine.model.importer import import_model
from services.engine.runner import RunnerSettings, TokenLogprobs
from services.engine.runner_registry import make_runner
from services.engine.self_check.command import main
from services.engine.self_check.findings import Findings
from services.engine.self_check.numbers import check_finite
from services.kit.model_store import CONFIG, MANIFEST, TOKENIZER, WEIGHTS, ModelCorruptError, ModelStore, ModelVersion
from tests.harness.cpu_kernels import share_kernels
from tests.harness.resigned_model import change_json, change_manifest, replace_file
from tests.harness.tiny_gguf import TinyGguf

Change = Callable[[ModelVersion], object]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A store with a sound tiny model."""
    tiny = TinyGguf(matrix_type=gguf.GGMLQuantizationType.Q8_0)
    import_model(tiny.write(tmp_path / "tiny.gguf"), "tiny", share_kernels(tmp_path))
    return tmp_path


def remove(name: str) -> Change:
    return lambda version: (version.path / name).unlink()


def cut(name: str) -> Change:
    def change(version: ModelVersion) -> None:
        path = version.path / name
        path.chmod(0o644)
        path.write_bytes(path.read_bytes()[:-100])

    return change


def signed(name: str, content: bytes) -> Change:
    return lambda version: replace_file(version, name, content)


def cut_and_signed(version: ModelVersion) -> None:
    replace_file(version, WEIGHTS, (version.path / WEIGHTS).read_bytes()[:-100])


def config(**fields: object) -> Change:
    return lambda version: change_json(version, CONFIG, lambda document: document.update(fields))


def vocabulary(change: Callable[[dict[str, int]], object]) -> Change:
    def changed(document: dict[str, Any]) -> object:
        return change(document["model"]["vocab"])

    return lambda version: change_json(version, TOKENIZER, changed)


def manifest(**fields: object) -> Change:
    return lambda version: change_manifest(version, fields)


@pytest.mark.parametrize(
    ("change", "names", "told"),
    [
        (remove(MANIFEST), ["self-check"], "manifest.json cannot be read"),
        (remove(WEIGHTS), ["self-check"], "model.safetensors is missing"),
        (cut(WEIGHTS), ["self-check"], "model.safetensors has"),
        (cut_and_signed, ["files", "tokenizer", "self-check"], "model.safetensors is not a safetensors file"),
        (signed(WEIGHTS, b"no weights"), ["files", "tokenizer", "self-check"], "model.safetensors is not a safetensors file"),
        (signed(CONFIG, b"{"), ["files", "self-check"], "config.json does not describe a llama network"),
        (signed(CONFIG, b"[]"), ["files", "self-check"], "config.json does not describe a llama network"),
        (config(vocab_size=300), ["files", "self-check"], "another vocabulary than the manifest's"),
        (config(hidden_size=128), ["files", "tokenizer", "self-check"], "has shape (263, 64) instead of (263, 128)"),
        (config(num_hidden_layers=3), ["files", "tokenizer", "self-check"], "has no model.layers.2."),
        (signed(TOKENIZER, b"{"), ["files", "self-check"], "tokenizer.json is no tokenizer"),
        (vocabulary(lambda vocab: vocab.update({"zzzz": 5000})), ["files", "tokenizer"], "5001 tokens for 263 embeddings"),
        (vocabulary(lambda vocab: vocab.pop("a")), ["files", "tokenizer"], "do not come back"),
        (manifest(eos_token_ids=[5000]), ["files", "tokenizer"], "263 tokens for 263 embeddings"),
        (manifest(max_context_tokens=8), ["files", "tokenizer", "context"], "8 tokens of text fit the context of 8"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_main_says_in_its_last_finding_what_is_wrong_with_a_folder(
    home: Path, capsys: pytest.CaptureFixture[str], change: Change, names: list[str], told: str
) -> None:
    change(ModelStore(home).get("tiny"))
    assert main(["--self-check", "tiny", "--home", str(home)]) == 1
    *found, summary = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in found] == [["pass", name] for name in names[:-1]] + [["FAIL", names[-1]]]
    assert told in found[-1]
    assert summary == f"{len(names) - 1} of {len(names)} checks passed"


@pytest.mark.parametrize("runner", ["cpu", "torch"])
@pytest.mark.parametrize("change", [cut_and_signed, signed(WEIGHTS, b"no weights"), signed(CONFIG, b"{")], ids=["cut", "none", "no config"])
def test_runner_refuses_files_whose_checksums_hold_but_whose_contents_are_none(home: Path, runner: str, change: Change) -> None:
    change(ModelStore(home).get("tiny"))
    with pytest.raises(ModelCorruptError):
        make_runner(runner, RunnerSettings("tiny", "", home, num_blocks=4))


def test_check_finite_tells_a_model_that_makes_less_of_the_text_than_a_guess() -> None:
    findings = Findings()
    assert check_finite(findings, [TokenLogprobs(1, -5.0)], 200)
    assert check_finite(findings, [TokenLogprobs(1, -6.0)], 200)
    assert check_finite(findings, [TokenLogprobs(1, -5000.0)], 200)
    assert ["a guess is better" in finding.detail for finding in findings.found] == [False, True, True]
