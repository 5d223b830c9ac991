"""The whole mesh as a user starts it (`inferway up`), in a home and on ports of its own, with a hand on every process."""

from __future__ import annotations

import os
import pathlib
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from deploy.local import mesh_status
from deploy.local.home import Home
from deploy.local.local_keys import operator_key_file
from deploy.local.ports import PortPlan
from deploy.local.process import ProcessIdentity
from tests.harness.eventually import eventually

UP_TIMEOUT_S = 180
MODEL = "smollm2-135m-instruct"
_BASES = range(20_000, 32_000, 200)


class Mesh:
    """A running mesh. Only processes of this mesh are ever signalled."""

    def __init__(self, home: Home, port_base: int, environ: Mapping[str, str]) -> None:
        self.home, self.ports, self._environ = home, PortPlan.from_base(port_base), dict(environ)

    @property
    def base_url(self) -> str:
        """Of the plain listener."""
        return f"http://127.0.0.1:{self.ports.edge_http}"

    @property
    def key(self) -> str:
        """The demo tenant's key."""
        return self.home.demo_key_file.read_text().strip()

    @property
    def operator_key(self) -> str:
        """May call Admin."""
        return operator_key_file(self.home).read_text().strip()

    def run(self, *arguments: str, timeout_s: float = UP_TIMEOUT_S) -> subprocess.CompletedProcess[str]:
        """Runs `inferway ARGUMENTS` for this mesh."""
        command = [str(pathlib.Path(sys.executable).with_name("inferway")), *arguments]
        return subprocess.run(command, env=self._environ, capture_output=True, text=True, timeout=timeout_s, check=False)

    def up(self) -> str:
        """Brings the mesh up; the error tells what the command said."""
        done = self.run("up")
        if done.returncode != 0:
            raise RuntimeError(f"inferway up failed:\n{done.stdout}\n{done.stderr}\n{self._last_lines()}")
        return done.stdout

    def child(self, name: str) -> mesh_status.ChildStatus:
        """What the supervisor says about one child."""
        found = self.status().child(name)
        assert found is not None, f"no child {name}"
        return found

    def status(self) -> mesh_status.MeshStatus:
        """What the supervisor says."""
        found = mesh_status.read(self.home.status_file)
        assert found is not None, "no mesh status"
        return found

    def kill(self, name: str) -> ProcessIdentity:
        """kill -9 of a child of the supervisor."""
        identity = self.child(name).identity
        assert identity is not None, f"{name} does not run"
        identity.signal(signal.SIGKILL)
        return identity

    def replicas(self) -> dict[str, ProcessIdentity]:
        """Processes of the engine replicas, by slot."""
        found = {}
        for process in self.status().processes:
            variables = _environ_of(process.pid)
            if process.is_alive and "INFERWAY_ENGINE_REPLICA_ID" in variables:
                found[variables["INFERWAY_ENGINE_REPLICA_ID"]] = process
        return found

    def ports_of_replicas(self, which: str = "PORT") -> dict[str, int]:
        """Ports of the engine replicas, by slot: gRPC or METRICS_PORT; a replica that has just gone is left out."""
        ports = {slot: _environ_of(process.pid).get(f"INFERWAY_ENGINE_{which}") for slot, process in self.replicas().items()}
        return {slot: int(port) for slot, port in ports.items() if port}

    async def until_ready(self, name: str, other_than: ProcessIdentity, timeout_s: float = 60.0) -> None:
        """Waits until the supervisor has replaced a process and its successor is ready."""
        await eventually(lambda: self.child(name).identity != other_than and self.child(name).state == "ready", timeout_s)

    def _last_lines(self) -> str:
        logs = sorted(self.home.logs.glob("*.log"))
        return "\n".join(f"== {log.name}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-8:]) for log in logs)


@contextmanager
def running_mesh(directory: pathlib.Path, models: pathlib.Path | None = None, **environ: str) -> Iterator[Mesh]:
    """A mesh in `directory`, up on entry and down on exit; `models` is a model store to use instead of importing again."""
    home = Home(directory)
    home.create()
    if models is not None:
        home.models.rmdir()
        home.models.symlink_to(models)
    base = _free_base()
    own = {"INFERWAY_HOME": str(directory), "INFERWAY_PORT_BASE": str(base), **environ}
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("INFERWAY_")}
    mesh = Mesh(home, base, {**inherited, **own})
    try:
        mesh.up()
        yield mesh
    finally:
        mesh.run("down")


def _free_base() -> int:
    """A port base whose listeners are all free now; different processes begin to look at different places."""
    start = os.getpid() % len(_BASES)
    for base in [*_BASES[start:], *_BASES[:start]]:
        if all(_is_free(port) for port in PortPlan.from_base(base).listeners().values()):
            return base
    raise RuntimeError("no free port base")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _environ_of(pid: int) -> dict[str, str]:
    try:
        raw = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (entry.partition(b"=") for entry in raw.split(b"\0") if entry)
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, _, value in pairs}
