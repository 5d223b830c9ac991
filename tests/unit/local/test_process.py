"""Processes are known by pid and start time, and are never confused with a later one of the same pid."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from deploy.local.child import describe_exit
from deploy.local.process import ProcessIdentity, descendants, end, spawn

_FOREVER = (sys.executable, "-c", "import signal; signal.pause()")
_STUBBORN = "import signal, sys; signal.signal(15, signal.SIG_IGN); open(sys.argv[1], 'w').close(); signal.pause()"
_BOTH_STREAMS = "import sys; print('out', flush=True); print('err', file=sys.stderr)"
_PARENT = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, sys.argv[1], str(os.getpid()), sys.executable, '-c', 'import signal; signal.pause()'])
print(child.pid, flush=True)
child.wait()
"""


def test_identity_of_this_process_is_stable_and_alive() -> None:
    own = ProcessIdentity.of(os.getpid())

    assert own is not None and own.is_alive
    assert own == ProcessIdentity.of(os.getpid())


async def gone(pid: int) -> None:
    """Return when the process has ended; TimeoutError otherwise."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(descriptor, ended.set)
    try:
        async with asyncio.timeout(10):
            await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


async def test_signal_for_a_recycled_pid_hits_nobody(tmp_path: Path) -> None:
    child = await spawn(_FOREVER, os.environ, tmp_path / "log", tmp_path)
    stale = ProcessIdentity(child.identity.pid, "another boot:1")

    stale.signal(signal.SIGKILL)
    await asyncio.to_thread(end, [stale], 0.1)

    assert child.identity.is_alive
    await child.stop(5)
    assert not child.identity.is_alive


async def test_spawn_appends_the_output_to_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")

    child = await spawn((sys.executable, "-c", _BOTH_STREAMS), os.environ, log, tmp_path)

    assert await child.wait() == 0
    assert log.read_text() == "before\nout\nerr\n"


async def test_stop_of_a_child_that_ignores_sigterm_kills_it(tmp_path: Path) -> None:
    deaf = tmp_path / "deaf"
    os.mkfifo(deaf)
    child = await spawn((sys.executable, "-c", _STUBBORN, str(deaf)), os.environ, tmp_path / "log", tmp_path)
    async with asyncio.timeout(10):
        await asyncio.to_thread(deaf.read_text)  # returns when the child has opened and closed its end

    await child.stop(grace_s=0.05)

    assert await child.wait() == -signal.SIGKILL


async def test_launched_program_dies_when_its_parent_is_killed(tmp_path: Path) -> None:
    launcher = Path(spawn.__code__.co_filename).with_name("launch.py")
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", _PARENT, str(launcher), stdout=asyncio.subprocess.PIPE)
    assert parent.stdout is not None
    child = ProcessIdentity.of(int(await parent.stdout.readline()))
    assert child is not None and child in await asyncio.to_thread(descendants, parent.pid)

    parent.kill()
    await parent.wait()

    await gone(child.pid)
    assert not child.is_alive


async def test_spawn_of_a_program_that_is_not_there_ends_with_a_status(tmp_path: Path) -> None:
    child = await spawn(("/nowhere/at/all",), os.environ, tmp_path / "log", tmp_path)

    assert await child.wait() != 0
    assert "No such file" in (tmp_path / "log").read_text()


def test_describe_exit_names_signals() -> None:
    assert describe_exit(0) == "exit status 0"
    assert describe_exit(-9) == "killed by SIGKILL"
    assert describe_exit(-200) == "killed by signal 200"
