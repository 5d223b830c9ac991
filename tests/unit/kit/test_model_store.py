"""The model store gives out a version only when every byte is what the importer wrote."""

import json
from pathlib import Path

import pytest

from services.engine.model.importer import import_model
from services.kit.model_store import (
    CHAT_TEMPLATE,
    CONFIG,
    MANIFEST,
    REQUIRED_FILES,
    TOKENIZER,
    WEIGHTS,
    ModelCorruptError,
    ModelNotFoundError,
    ModelStore,
    ModelVersion,
)
from tests.harness.tiny_gguf import TEMPLATE, TinyGguf


@pytest.fixture
def version(tmp_path: Path) -> ModelVersion:
    source = TinyGguf().write(tmp_path / "tiny.gguf")
    return import_model(source, "tiny", tmp_path / "home")


def home_of(version: ModelVersion) -> Path:
    return version.path.parents[2]


def test_get_returns_limits_and_readable_files(version: ModelVersion) -> None:
    found = ModelStore(home_of(version)).get("tiny")
    assert found == version
    assert (found.max_context_tokens, found.vocab_size, found.bos_token_id) == (512, 263, 1)
    assert found.eos_token_ids == {2}
    assert found.read(CHAT_TEMPLATE).decode() == TEMPLATE
    found.verify()


@pytest.mark.parametrize("name", [WEIGHTS, CONFIG, TOKENIZER, CHAT_TEMPLATE])
def test_verify_one_flipped_bit_is_corrupt(version: ModelVersion, name: str) -> None:
    content = bytearray(version.file(name).read_bytes())
    content[len(content) // 2] ^= 1
    version.file(name).write_bytes(content)
    found = ModelStore(home_of(version)).get("tiny")
    with pytest.raises(ModelCorruptError, match=f"{name} does not match its checksum"):
        found.verify()
    with pytest.raises(ModelCorruptError, match=name):
        found.read(name)


def test_verify_named_files_leaves_others_unread(version: ModelVersion) -> None:
    content = version.file(CONFIG).read_bytes()
    version.file(CONFIG).write_bytes(content[:-1] + b" ")
    version.verify([WEIGHTS, TOKENIZER])


@pytest.mark.parametrize("name", REQUIRED_FILES)
def test_get_truncated_file_is_corrupt(version: ModelVersion, name: str) -> None:
    content = version.file(name).read_bytes()
    version.file(name).write_bytes(content[:-1])
    with pytest.raises(ModelCorruptError, match=f"{name} has {len(content) - 1} bytes"):
        ModelStore(home_of(version)).get("tiny")


@pytest.mark.parametrize("name", REQUIRED_FILES)
def test_get_missing_file_is_corrupt(version: ModelVersion, name: str) -> None:
    version.file(name).unlink()
    with pytest.raises(ModelCorruptError, match=f"{name} is missing"):
        ModelStore(home_of(version)).get("tiny")


@pytest.mark.parametrize(
    ("field", "value"),
    [("max_context_tokens", 100000), ("eos_token_ids", [5]), ("name", "other"), ("files", {}), ("defaults", {"top_p": 0.1})],
)
def test_get_altered_manifest_is_corrupt(version: ModelVersion, field: str, value: object) -> None:
    path = version.path / MANIFEST
    manifest = json.loads(path.read_text())
    manifest[field] = value
    path.write_text(json.dumps(manifest))
    with pytest.raises(ModelCorruptError, match="altered"):
        ModelStore(home_of(version)).get("tiny", version.version)


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"format": 1}', '{"format": 2}'])
def test_get_broken_manifest_is_corrupt(version: ModelVersion, content: str) -> None:
    (version.path / MANIFEST).write_text(content)
    with pytest.raises(ModelCorruptError, match="not a manifest"):
        ModelStore(home_of(version)).get("tiny")


def test_get_manifest_that_lists_a_path_outside_is_corrupt(version: ModelVersion) -> None:
    path = version.path / MANIFEST
    manifest = json.loads(path.read_text())
    manifest["files"]["../../secret"] = manifest["files"][CONFIG]
    path.write_text(json.dumps(manifest))
    with pytest.raises(ModelCorruptError):
        ModelStore(home_of(version)).get("tiny")


@pytest.mark.parametrize("name", ["", "../tiny", "Tiny", "a/b", ".hidden", "x" * 129])
def test_get_impossible_name_is_not_found(tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelNotFoundError, match="not a model name"):
        ModelStore(tmp_path).get(name)


@pytest.mark.parametrize("asked", ["000000000000", "..", "../tiny"])
def test_get_unknown_version_is_not_found(version: ModelVersion, asked: str) -> None:
    with pytest.raises(ModelNotFoundError, match="no version"):
        ModelStore(home_of(version)).get("tiny", asked)


def test_get_unknown_model_says_how_to_import_it(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="inferway model import tiny"):
        ModelStore(tmp_path).get("tiny")


def test_list_shows_every_version_and_no_work_in_progress(version: ModelVersion, tmp_path: Path) -> None:
    other = import_model(TinyGguf(seed=1).write(tmp_path / "other.gguf"), "tiny", home_of(version))
    (version.path.parent / ".tmp-abc").mkdir()
    store = ModelStore(home_of(version))
    assert store.list() == [version, other]
    assert store.get("tiny") == other
    assert store.get("tiny", version.version) == version
    assert ModelStore(tmp_path / "nowhere").list() == []
