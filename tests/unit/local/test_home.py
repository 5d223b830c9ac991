"""INFERWAY_HOME is private, complete, and written atomically."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.local.errors import LocalError
from deploy.local.home import Home, write_atomically


def test_home_created_is_private_and_has_every_directory(tmp_path: Path) -> None:
    home = Home(tmp_path / "deep" / "home")

    home.create()

    assert home.root.stat().st_mode & 0o077 == 0
    assert sorted(path.name for path in home.root.iterdir()) == ["certs", "etcd", "kafka", "logs", "models", "outbox", "run", "state"]


def test_home_below_a_file_is_refused_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(LocalError, match="cannot be written"):
        Home(tmp_path / "file" / "home").create()


def test_write_atomically_replaces_content_and_keeps_it_private(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("a longer text that was there before")

    write_atomically(path, b"new")

    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [found.name for found in tmp_path.iterdir()] == ["secret"]
