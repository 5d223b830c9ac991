"""The log of a replica."""

import json
from pathlib import Path

import pytest

from services.engine.node.replica_log import ReplicaLog, trim_logs


@pytest.fixture
def log(tmp_path: Path) -> ReplicaLog:
    log = ReplicaLog(tmp_path, "m-0")
    log.path.parent.mkdir()
    return log


@pytest.mark.parametrize(
    ("written", "word"),
    [
        ("", ""),
        ("cannot start:\nINFERWAY_ENGINE_X: unknown setting\n\n", "INFERWAY_ENGINE_X: unknown setting"),
        (json.dumps({"level": "error", "message": "the step loop has ended"}) + "\n", "the step loop has ended"),
        (json.dumps({"level": "error"}) + "\n", '{"level": "error"}'),
        ("[1, 2]\n", "[1, 2]"),
        ("x" * 20_000, "x" * 300),
        ("\udcff".encode("utf-8", "surrogateescape").decode("latin-1") + "end\n", "ÿend"),
    ],
)
def test_log_last_word(log: ReplicaLog, written: str, word: str) -> None:
    log.path.write_text(written)
    assert log.last_word() == word


def test_log_that_does_not_exist_has_no_last_word(log: ReplicaLog) -> None:
    assert log.last_word() == ""


def test_log_too_long_is_moved_aside_and_the_writer_goes_on(log: ReplicaLog, tmp_path: Path) -> None:
    with log.path.open("a") as writer:
        writer.write("old" * 2000)
        writer.flush()
        trim_logs(tmp_path, 4096)
        writer.write("new")
    assert log.path.read_text() == "new"
    assert log.path.with_name("replica-m-0.log.1").read_text() == "old" * 2000


def test_log_short_enough_stays(log: ReplicaLog, tmp_path: Path) -> None:
    log.path.write_text("short")
    trim_logs(tmp_path, 4096)
    assert log.path.read_text() == "short"
    assert len(list(log.path.parent.iterdir())) == 1
