"""Waits for parts of a mesh while watching for the ways in which it can fail, so that no wait ends without a reason."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from deploy.local.errors import LocalError
from deploy.local.home import Home
from deploy.local.mesh_status import ChildState, ChildStatus, MeshStatus, read
from deploy.local.process import ProcessIdentity
from deploy.local.progress import Step
from deploy.local.rotation import last_line

_TIMEOUT_S = 90.0
_POLL_S = 0.1
_MAX_DEATHS = 3


class MeshWatch:
    """Reads the status file of one supervisor until children are ready."""

    def __init__(self, home: Home, supervisor: ProcessIdentity) -> None:
        self._home = home
        self._supervisor = supervisor

    async def until_ready(self, step: Step, *names: str) -> None:
        """Wait for the named children, or for all; raises LocalError when the supervisor or a child keeps dying, or after 90 s."""

        async def missing() -> str:
            mesh = read(self._home.status_file)
            self._check(mesh)
            if mesh is None:
                return "the supervisor starts"
            return ", ".join(f"{one.name} ({one.state.value})" for one in _wanted(mesh, names) if one.state is not ChildState.READY)

        await until_empty(missing, step, _TIMEOUT_S, "The mesh did not get ready", self._home.log("supervisor"))

    def _check(self, mesh: MeshStatus | None) -> None:
        if not self._supervisor.is_alive:
            reason = last_line(self._home.log("supervisor")) or "it said nothing"
            raise LocalError(f"The supervisor ended: {reason}", f"Read {self._home.log('supervisor')}.")
        for child in mesh.children if mesh else ():
            if child.state is ChildState.BACKING_OFF and child.num_restarts >= _MAX_DEATHS - 1:
                log = self._home.log(child.name)
                raise LocalError(f"{child.name} keeps dying ({child.last_exit}): {last_line(log) or 'it said nothing'}", f"Read {log}.")


async def until_empty(missing: Callable[[], Awaitable[str]], step: Step, timeout_s: float, failure: str, log: Path) -> None:
    """Ask `missing` until it says nothing; raises LocalError with its last word after `timeout_s`."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while reason := await missing():
        step.say(reason)
        if loop.time() > deadline:
            raise LocalError(f"{failure} within {timeout_s:.0f} s: {reason}.", f"Read {log}.")
        await asyncio.sleep(_POLL_S)


def _wanted(mesh: MeshStatus, names: tuple[str, ...]) -> list[ChildStatus]:
    return [child for child in mesh.children if not names or child.name in names]
