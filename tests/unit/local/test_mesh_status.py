"""The status file: written by one process, read by any, never trusted blindly."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.local.mesh_status import ChildState, ChildStatus, MeshStatus, read
from deploy.local.process import ProcessIdentity

STATUS = MeshStatus(
    supervisor=ProcessIdentity(10, "boot:1"),
    port_base=8400,
    runner="sim",
    broker="Tansu",
    bootstrap="127.0.0.1:8462",
    children=(
        ChildStatus("etcd", ChildState.READY, 1.5, ProcessIdentity(11, "boot:2"), ports={"client": 8460}),
        ChildStatus("gateway", ChildState.BACKING_OFF, 2.5, None, num_restarts=3, last_exit="killed by SIGKILL"),
    ),
    processes=(ProcessIdentity(11, "boot:2"),),
)


def test_status_written_is_read_back_equal(tmp_path: Path) -> None:
    STATUS.write(tmp_path / "status.json")

    assert read(tmp_path / "status.json") == STATUS


def test_status_with_a_child_that_is_not_ready_is_not_ready() -> None:
    assert not STATUS.is_ready


@pytest.mark.parametrize("content", ["", "{", "[]", '{"supervisor": {"pid": 1}}', '{"supervisor": null}'])
def test_status_of_another_form_counts_as_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "status.json").write_text(content)

    assert read(tmp_path / "status.json") is None
