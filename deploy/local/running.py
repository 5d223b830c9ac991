"""Finds the mesh of an INFERWAY_HOME: whether its supervisor lives, and what an earlier one may have left behind."""

import os
import sys
from collections.abc import Mapping

from deploy.local import process
from deploy.local.home import Home
from deploy.local.mesh_status import MeshStatus, read

STOP_TIMEOUT_S = 60.0
_LEFTOVER_GRACE_S = 3.0


def find(home: Home) -> MeshStatus | None:
    """The status of the running mesh; None when no supervisor lives."""
    status = read(home.status_file)
    return status if status and status.supervisor.is_alive else None


def start(home: Home, environ: Mapping[str, str]) -> process.ProcessIdentity:
    """Start a supervisor in its own session and return at once; what it says before its children log goes to supervisor.log."""
    home.status_file.unlink(missing_ok=True)
    # Not subprocess: its object would speak up when this command ends and the supervisor, as it should, lives on.
    log = (os.POSIX_SPAWN_OPEN, 1, str(home.log("supervisor")), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    actions = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), log, (os.POSIX_SPAWN_DUP2, 1, 2)]
    argv = (sys.executable, "-P", "-m", "deploy.local")
    pid = os.posix_spawn(sys.executable, argv, environ, file_actions=actions, setsid=True)
    return process.ProcessIdentity.of(pid) or process.ProcessIdentity(pid, "")


def stop(home: Home) -> bool:
    """End the mesh and whatever an earlier one left behind; False when there was nothing. Blocks until all is gone."""
    status = read(home.status_file)
    if status is None:
        return False
    was_running = status.supervisor.is_alive
    process.end([status.supervisor], STOP_TIMEOUT_S)
    return end_leftovers(home) or was_running


def end_leftovers(home: Home) -> bool:
    """End the recorded processes of a supervisor that is gone. A pid that belongs to another process by now is left alone."""
    status = read(home.status_file)
    if status is None or status.supervisor.is_alive:
        return False
    left = [one for one in status.processes if one.is_alive]
    process.end(left, _LEFTOVER_GRACE_S)
    home.status_file.unlink(missing_ok=True)
    return bool(left)
