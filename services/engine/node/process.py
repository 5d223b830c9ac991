"""Replica processes of the operating system: own process group, output into the replica's log, dead with the node agent."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from services.engine.node import launch_bound
from services.engine.node.config import NodeConfig
from services.engine.node.launcher import LaunchError, ProcessEnd
from services.engine.node.order import Order
from services.engine.node.ports import PortPool
from services.engine.node.replica_environ import replica_environ
from services.engine.node.replica_log import ReplicaLog
from services.kit.errors import ResourceExhausted


class OsProcess:
    """A started replica. Its ports go back to the pool with its end."""

    def __init__(self, process: asyncio.subprocess.Process, host: str, ports: tuple[int, int], pool: PortPool, log: ReplicaLog) -> None:
        self._process = process
        self._host = host
        self._ports = ports
        self._pool = pool
        self._log = log
        self._end: ProcessEnd | None = None

    @property
    def address(self) -> str:
        """See ReplicaProcess."""
        return f"{self._host}:{self._ports[0]}"

    @property
    def pid(self) -> int:
        """See ReplicaProcess."""
        return self._process.pid

    async def wait(self) -> ProcessEnd:
        """See ReplicaProcess. Whatever is left of the process group ends with it."""
        status = await self._process.wait()
        if self._end is None:
            self._signal_group(signal.SIGKILL)
            for port in self._ports:
                self._pool.give_back(port)
            self._end = describe_end(status, self._log.last_word())
        return self._end

    def terminate(self) -> None:
        """See ReplicaProcess."""
        if self._process.returncode is None:
            self._process.terminate()

    def kill(self) -> None:
        """See ReplicaProcess."""
        if self._process.returncode is None:
            self._signal_group(signal.SIGKILL)

    def _signal_group(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):
            return


class ProcessLauncher:
    """Launcher that starts `config.replica_command`. `inherited` is the environment that replicas start from."""

    def __init__(self, config: NodeConfig, inherited: Mapping[str, str]) -> None:
        self._config = config
        self._inherited = inherited
        self._pool = PortPool(config.host, config.replica_port_first, config.replica_port_last)

    async def launch(self, order: Order) -> OsProcess:
        """See Launcher."""
        ports = self._take_ports()
        log = ReplicaLog(Path(self._config.home), order.replica_id)
        try:
            process = await self._spawn(order, ports, log)
        except OSError as error:
            for port in ports:
                self._pool.give_back(port)
            raise LaunchError(f"could not be started: {error.strerror}") from error
        return OsProcess(process, self._config.reachable_host, ports, self._pool, log)

    async def _spawn(self, order: Order, ports: tuple[int, int], log: ReplicaLog) -> asyncio.subprocess.Process:
        log.path.parent.mkdir(parents=True, exist_ok=True)
        command = (sys.executable, "-I", "-S", launch_bound.__file__, str(os.getpid()), *self._config.replica_command)
        output = os.open(log.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            return await asyncio.create_subprocess_exec(
                *command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=replica_environ(self._inherited, self._config, order, *ports),
                start_new_session=True,
            )
        finally:
            os.close(output)

    def _take_ports(self) -> tuple[int, int]:
        try:
            port = self._pool.take()
        except ResourceExhausted as error:
            raise LaunchError(f"could not be started: {error.message}") from error
        try:
            return port, self._pool.take()
        except ResourceExhausted as error:
            self._pool.give_back(port)
            raise LaunchError(f"could not be started: {error.message}") from error


def describe_end(status: int, last_word: str) -> ProcessEnd:
    """How a process ended, with the last word of its log unless it ended well."""
    if status == 0:
        return ProcessEnd("exit", "ended with status 0")
    kind, how = ("exit", f"ended with status {status}") if status > 0 else ("signal", f"was killed by {_signal_name(-status)}")
    return ProcessEnd(kind, f"{how}: {last_word}" if last_word else how)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
