"""Keeping the status file and the logs must never take the mesh down."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deploy.local.broker import BrokerKind
from deploy.local.mesh_status import ChildState, ChildStatus, read
from deploy.local.settings import Settings
from deploy.local.supervise import StatusBoard, rotate_log

CHILDREN = (ChildStatus("etcd", ChildState.READY, 1.0),)


def board(path: Path) -> StatusBoard:
    return StatusBoard(Settings.from_environ({"INFERWAY_PORT_BASE": "20000"}), BrokerKind.TANSU, path)


def test_status_board_writes_what_is_published(tmp_path: Path) -> None:
    board(tmp_path / "status.json").publish(CHILDREN)

    status = read(tmp_path / "status.json")
    assert status is not None and status.children == CHILDREN
    assert (status.supervisor.pid, status.broker, status.bootstrap) == (os.getpid(), "Tansu", "127.0.0.1:20062")


def test_status_board_that_cannot_write_says_so_and_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = tmp_path / "gone"
    made = board(place / "status.json")

    made.publish(CHILDREN)
    place.mkdir()
    made.refresh()

    assert "the status file cannot be written" in caplog.text
    assert read(place / "status.json") is not None


def test_rotate_log_that_fails_is_left_to_the_next_round(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = tmp_path / "gateway.log"
    with log.open("wb") as file:
        file.truncate(17 * 1024 * 1024)
    (tmp_path / "gateway.log.1").mkdir()
    (tmp_path / "gateway.log.2").touch()  # a directory cannot take the place of a file

    rotate_log(log)

    assert "a log cannot be rotated" in caplog.text
