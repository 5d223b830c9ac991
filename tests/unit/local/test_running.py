"""What an earlier supervisor left behind is ended by pid and start time, and nothing else is touched."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from deploy.local import running
from deploy.local.errors import LocalError
from deploy.local.home import Home
from deploy.local.mesh_status import MeshStatus
from deploy.local.process import ProcessIdentity, spawn
from deploy.local.supervise import exclusive

_FOREVER = (sys.executable, "-c", "import signal; signal.pause()")
_GONE = ProcessIdentity(os.getpid(), "another boot:1")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path)
    made.create()
    return made


def write(home: Home, supervisor: ProcessIdentity, *processes: ProcessIdentity) -> None:
    MeshStatus(supervisor, 8400, "sim", "Tansu", "127.0.0.1:8462", (), processes).write(home.status_file)


async def test_end_leftovers_ends_recorded_processes_and_spares_a_recycled_pid(home: Home) -> None:
    left = await spawn(_FOREVER, os.environ, home.log("left"), home.run)
    spared = await spawn(_FOREVER, os.environ, home.log("spared"), home.run)
    write(home, _GONE, left.identity, ProcessIdentity(spared.identity.pid, "another boot:1"))

    assert await asyncio.to_thread(running.end_leftovers, home)

    assert not left.identity.is_alive
    assert spared.identity.is_alive
    assert running.find(home) is None
    await left.wait()
    await spared.stop(1)


async def test_end_leftovers_of_a_living_supervisor_does_nothing(home: Home) -> None:
    own = ProcessIdentity.of(os.getpid())
    assert own is not None
    child = await spawn(_FOREVER, os.environ, home.log("child"), home.run)
    write(home, own, child.identity)

    assert not await asyncio.to_thread(running.end_leftovers, home)

    assert child.identity.is_alive
    assert running.find(home) is not None
    await child.stop(1)


def test_stop_without_a_mesh_says_that_there_was_none(home: Home) -> None:
    assert not running.stop(home)


def test_exclusive_held_elsewhere_is_refused_with_a_sentence(home: Home) -> None:
    with exclusive(home.command_lock), pytest.raises(LocalError, match="Another inferway command"), exclusive(home.command_lock):
        raise AssertionError("both held the lock")
