"""The supervisor's own view of the mesh, kept in one small file that every command may read."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from deploy.local.home import write_atomically
from deploy.local.process import ProcessIdentity


class ChildState(StrEnum):
    """WAITING for another child; STARTING until the probe answers; BACKING_OFF after a death; STOPPED on request."""

    WAITING = "waiting"
    STARTING = "starting"
    READY = "ready"
    BACKING_OFF = "backing off"
    STOPPED = "stopped"


@dataclass(frozen=True)
class ChildStatus:
    """One child. `last_exit` is empty until its first death; `since_s` is wall-clock seconds of the last change of state."""

    name: str
    state: ChildState
    since_s: float
    identity: ProcessIdentity | None = None
    num_restarts: int = 0
    last_exit: str = ""
    ports: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class MeshStatus:
    """The mesh: who supervises it, with what choices, its children, and every process below the supervisor."""

    supervisor: ProcessIdentity
    port_base: int
    runner: str
    broker: str
    bootstrap: str
    children: tuple[ChildStatus, ...]
    processes: tuple[ProcessIdentity, ...]

    @property
    def is_ready(self) -> bool:
        return all(child.state is ChildState.READY for child in self.children)

    def child(self, name: str) -> ChildStatus | None:
        return next((child for child in self.children if child.name == name), None)

    def write(self, path: Path) -> None:
        write_atomically(path, json.dumps(asdict(self)).encode())


def read(path: Path) -> MeshStatus | None:
    """The last status written; None when there is none or it is of another form."""
    try:
        raw = json.loads(path.read_bytes())
        return MeshStatus(
            supervisor=ProcessIdentity(**raw["supervisor"]),
            port_base=raw["port_base"],
            runner=raw["runner"],
            broker=raw["broker"],
            bootstrap=raw["bootstrap"],
            children=tuple(_child(child) for child in raw["children"]),
            processes=tuple(ProcessIdentity(**process) for process in raw["processes"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _child(raw: dict[str, Any]) -> ChildStatus:
    identity = raw.pop("identity")
    state = ChildState(raw.pop("state"))
    return ChildStatus(**raw, state=state, identity=ProcessIdentity(**identity) if identity else None)
