"""Replica processes that live and die by the test's word."""

import asyncio

from services.engine.node.launcher import LaunchError, ProcessEnd
from services.engine.node.order import Order


class ScriptedProcess:
    """One pretended replica. SIGTERM ends it unless `stubborn`."""

    def __init__(self, order: Order, number: int) -> None:
        self.order = order
        self.pid = 1000 + number
        self.address = f"127.0.0.1:{9000 + number}"
        self.serving = True
        self.stubborn = False
        self.terminated = self.killed = self.told_to_end = False
        self._end: asyncio.Future[ProcessEnd] = asyncio.get_running_loop().create_future()

    @property
    def alive(self) -> bool:
        return not self._end.done()

    async def wait(self) -> ProcessEnd:
        return await asyncio.shield(self._end)

    def terminate(self) -> None:
        self.terminated = True
        if not self.stubborn:
            self.end("exit", "ended with status 0")

    def kill(self) -> None:
        self.killed = self.killed or self.alive
        self.end("signal", "was killed by SIGKILL")

    def end(self, kind: str = "exit", sentence: str = "ended with status 1") -> None:
        if self.alive:
            self._end.set_result(ProcessEnd(kind, sentence))


class ScriptedLauncher:
    """Launcher and ReplicaClient at once; `processes` are all that were started, the newest last."""

    def __init__(self) -> None:
        self.processes: list[ScriptedProcess] = []
        self.refuse = ""
        self.serving_at_start = True

    async def launch(self, order: Order) -> ScriptedProcess:
        if self.refuse:
            raise LaunchError(self.refuse)
        process = ScriptedProcess(order, len(self.processes))
        process.serving = self.serving_at_start
        self.processes.append(process)
        return process

    @property
    def newest(self) -> ScriptedProcess:
        return self.processes[-1]

    @property
    def alive(self) -> list[ScriptedProcess]:
        return [process for process in self.processes if process.alive]

    async def is_serving(self, address: str) -> bool:
        return any(process.serving for process in self.alive if process.address == address)

    async def end_work(self, address: str) -> None:
        for process in self.alive:
            process.told_to_end = process.told_to_end or process.address == address
