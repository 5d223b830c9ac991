"""Which models the node says that it has."""

from pathlib import Path

from services.engine.node.model_cache import cached_models
from services.kit.model_store import MANIFEST
from tests.harness.tiny_model import write_tiny_model


def test_cache_without_a_store_is_empty(tmp_path: Path) -> None:
    assert cached_models(tmp_path) == ()


def test_cache_lists_every_whole_version(tmp_path: Path) -> None:
    one, two = write_tiny_model(tmp_path), write_tiny_model(tmp_path, name="other")
    assert cached_models(tmp_path) == (f"other@{two.version}", f"tiny@{one.version}")


def test_cache_damaged_version_is_left_out_and_the_others_stay(tmp_path: Path) -> None:
    damaged, whole = write_tiny_model(tmp_path), write_tiny_model(tmp_path, name="other")
    (damaged.path / MANIFEST).write_text("{}")
    assert cached_models(tmp_path) == (f"other@{whole.version}",)


def test_cache_stray_files_and_folders_are_no_models(tmp_path: Path) -> None:
    version = write_tiny_model(tmp_path)
    (tmp_path / "models" / "notes.txt").write_text("")
    (tmp_path / "models" / "tiny" / "building").mkdir()
    (tmp_path / "models" / "empty").mkdir()
    assert cached_models(tmp_path) == (f"tiny@{version.version}",)
