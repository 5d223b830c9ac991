"""Waiting for a mesh ends with it being ready, or with the reason why not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deploy.local.errors import LocalError
from deploy.local.home import Home
from deploy.local.mesh_status import ChildState, ChildStatus, MeshStatus
from deploy.local.mesh_watch import MeshWatch, until_empty
from deploy.local.process import ProcessIdentity


class Said:
    """A progress step that remembers what was said."""

    def __init__(self) -> None:
        self.details: list[str] = []

    def say(self, detail: str) -> None:
        self.details.append(detail)


@pytest.fixture
def own() -> ProcessIdentity:
    """A supervisor that lives: this process."""
    found = ProcessIdentity.of(os.getpid())
    assert found is not None
    return found


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path)
    made.create()
    return made


def write(home: Home, supervisor: ProcessIdentity, *children: ChildStatus) -> None:
    MeshStatus(supervisor, 8400, "sim", "Tansu", "127.0.0.1:8462", children, ()).write(home.status_file)


async def test_until_ready_of_one_child_does_not_wait_for_the_others(home: Home, own: ProcessIdentity) -> None:
    write(home, own, ChildStatus("etcd", ChildState.READY, 0), ChildStatus("kafka", ChildState.STARTING, 0))

    await MeshWatch(home, own).until_ready(Said(), "etcd")


async def test_until_ready_with_a_child_that_keeps_dying_quotes_its_last_word(home: Home, own: ProcessIdentity) -> None:
    home.log("router").write_text("cannot listen on 127.0.0.1:8420: is another process on this port?\n")
    write(home, own, ChildStatus("router", ChildState.BACKING_OFF, 0, num_restarts=2, last_exit="exit status 1"))

    with pytest.raises(LocalError, match=r"router keeps dying \(exit status 1\): cannot listen on .*router\.log"):
        await MeshWatch(home, own).until_ready(Said())


async def test_until_ready_with_a_child_that_died_once_waits_on(home: Home, own: ProcessIdentity) -> None:
    write(home, own, ChildStatus("router", ChildState.BACKING_OFF, 0, num_restarts=0))
    step = Said()

    def back_again() -> None:
        write(home, own, ChildStatus("router", ChildState.READY, 0, num_restarts=1))

    class Recovering(Said):
        def say(self, detail: str) -> None:
            step.say(detail)
            back_again()

    await MeshWatch(home, own).until_ready(Recovering())

    assert step.details == ["router (backing off)"]


async def test_until_ready_with_a_dead_supervisor_quotes_its_log(home: Home) -> None:
    home.log("supervisor").write_text("Another inferway command is at work.\n")

    with pytest.raises(LocalError, match="supervisor ended: Another inferway command is at work"):
        await MeshWatch(home, ProcessIdentity(os.getpid(), "another boot")).until_ready(Said())


async def test_until_empty_at_its_deadline_gives_the_last_reason(home: Home) -> None:
    async def missing() -> str:
        return "1 of 2 ready"

    with pytest.raises(LocalError, match=r"The replicas did not get ready within 0 s: 1 of 2 ready\. .*node\.log"):
        await until_empty(missing, Said(), 0.0, "The replicas did not get ready", home.log("node"))
