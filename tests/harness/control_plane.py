"""Scheduler and node agent over a real etcd, in this process or as processes of their own, and a client that waits for what it wants."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import grpc

from inferway.common.v1 import registry_pb2
from inferway.scheduler.v1 import scheduler_pb2 as pb
from inferway.scheduler.v1 import scheduler_pb2_grpc
from services.engine.node.server import run as run_node
from services.kit.channel import connect
from services.scheduler.server import run as run_scheduler
from tests.harness.etcd import EtcdServer
from tests.harness.ports import free_port, free_range

REPOSITORY = Path(__file__).resolve().parents[2]
WAIT_S = 40.0
CALL_S = 5.0
READY = registry_pb2.REPLICA_STATE_READY
RUNNING = registry_pb2.REPLICA_PROCESS_PHASE_RUNNING
STAND_IN = f"{sys.executable},-m,tests.harness.scripted_replica"
CODE = {"PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "protos" / "gen")])}
ENTRIES = {"scheduler": run_scheduler, "node": run_node}
MODULES = {"scheduler": "services.scheduler", "node": "services.engine.node"}


class ServiceTask:
    """A service in this process."""

    def __init__(self, name: str, environ: Mapping[str, str]) -> None:
        self._stop = asyncio.Event()
        self._task = asyncio.ensure_future(ENTRIES[name]({**os.environ, **CODE, **environ}, self._stop))

    async def stop(self) -> int:
        """As by SIGTERM; raises what the service raised."""
        self._stop.set()
        async with asyncio.timeout(WAIT_S):
            await self._task
        return 0

    async def close(self) -> None:
        """Ends it at once if it still runs."""
        self._task.cancel()
        await asyncio.wait({self._task})


class ServiceProcess:
    """A service as a process of its own, with its output in a file."""

    def __init__(self, name: str, environ: Mapping[str, str], log: Path) -> None:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("INFERWAY_")}
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", MODULES[name]],
                env={**inherited, **CODE, **environ},
                cwd=REPOSITORY,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def kill(self) -> None:
        """kill -9, and waits for the end."""
        self._process.kill()
        self._process.wait()

    async def until_logged(self, text: str) -> None:
        """Waits until the process has written the text."""

        async def read() -> str:
            return self.log.read_text()

        await eventually(read, lambda written: text in written)

    async def stop(self) -> int:
        """SIGTERM; returns the exit status."""
        self._process.send_signal(signal.SIGTERM)
        return await asyncio.to_thread(self._process.wait, WAIT_S)

    async def close(self) -> None:
        """Ends it at once if it still runs."""
        self.kill()


class ControlPlane:
    """Starts and ends the services of one test."""

    def __init__(self, home: Path, etcd: EtcdServer) -> None:
        self.home = home
        self.etcd = etcd
        self._services: list[ServiceTask | ServiceProcess] = []
        self._channels: list[grpc.aio.Channel] = []

    def scheduler(self, **settings: str) -> "Scheduler":
        """A scheduler in this process."""
        environ, channel = self._scheduler(settings)
        return Scheduler(self._keep(ServiceTask("scheduler", environ)), channel)

    def scheduler_process(self, **settings: str) -> tuple["Scheduler", ServiceProcess]:
        """A scheduler that can be killed."""
        environ, channel = self._scheduler(settings)
        process = ServiceProcess("scheduler", environ, self.home / f"scheduler-{len(self._services)}.out")
        return Scheduler(self._keep(process), channel), process

    def node(self, node_id: str = "a", **settings: str) -> ServiceTask:
        """A node agent in this process."""
        task = ServiceTask("node", self._node(node_id, settings))
        self._keep(task)
        return task

    def node_process(self, node_id: str = "a", **settings: str) -> ServiceProcess:
        """A node agent that can be killed."""
        process = ServiceProcess("node", self._node(node_id, settings), self.home / f"node-{node_id}.out")
        self._keep(process)
        return process

    def pids(self, replica_id: str) -> list[int]:
        """Every process that a slot has had, the newest last."""
        file = self.home / f"pids-{replica_id}"
        return [int(line) for line in file.read_text().split()] if file.exists() else []

    async def close(self) -> None:
        for channel in self._channels:
            await channel.close()
        for service in self._services:
            await service.close()

    def _scheduler(self, settings: Mapping[str, str]) -> tuple[dict[str, str], grpc.aio.Channel]:
        port = free_port()
        values = {"PORT": str(port), "ETCD_ENDPOINTS": self.etcd.endpoint, "LEADER_TTL_S": "2", "NODE_GRACE_S": "4", **settings}
        channel = connect(f"127.0.0.1:{values['PORT']}")
        self._channels.append(channel)
        return {f"INFERWAY_SCHEDULER_{field}": value for field, value in values.items()}, channel

    def _node(self, node_id: str, settings: Mapping[str, str]) -> dict[str, str]:
        replica_ports = free_range(40)
        values = {
            "NODE_ID": node_id,
            "HOME": str(self.home),
            "PORT": str(free_port()),
            "ETCD_ENDPOINTS": self.etcd.endpoint,
            "LEASE_TTL_S": "2",
            "REPLICA_PORT_FIRST": str(replica_ports[0]),
            "REPLICA_PORT_LAST": str(replica_ports[-1]),
            "REPLICA_COMMAND": STAND_IN,
            "HEALTH_INTERVAL_S": "0.1",
            "REPLICA_UNHEALTHY_TIMEOUT_S": "2",
            **settings,
        }
        return {f"INFERWAY_NODE_{field}": value for field, value in values.items()}

    def _keep(self, service: ServiceTask | ServiceProcess) -> ServiceTask | ServiceProcess:
        self._services.append(service)
        return service


class Scheduler:
    """A scheduler and its answers. `until` polls: the control plane has no watch."""

    def __init__(self, service: ServiceTask | ServiceProcess, channel: grpc.aio.Channel) -> None:
        self.service = service
        self.stub = scheduler_pb2_grpc.ControlPlaneStub(channel)

    async def deploy(self, model: str, num_replicas: int, drain_timeout_s: int = 20, **engine_settings: str) -> registry_pb2.Deployment:
        deployment = registry_pb2.Deployment(
            model=model, num_replicas=num_replicas, drain_timeout_s=drain_timeout_s, engine_settings=engine_settings
        )
        request = pb.DeployRequest(deployment=deployment)
        return (await self.stub.Deploy(request, timeout=CALL_S, wait_for_ready=True)).deployment

    async def assignments(self) -> dict[str, pb.AssignmentStatus]:
        response = await self.stub.ListAssignments(pb.ListAssignmentsRequest(), timeout=CALL_S)
        return {each.assignment.replica_id: each for each in response.assignments}

    async def until(self, wanted: Callable[[dict[str, pb.AssignmentStatus]], bool]) -> dict[str, pb.AssignmentStatus]:
        """The first state of the assignments that is as wanted."""
        return await eventually(self.assignments, wanted)

    async def until_ready(self, *replica_ids: str) -> dict[str, pb.AssignmentStatus]:
        """Waits until exactly these replicas are assigned, ready, and known as healthy by their node agent."""
        return await self.until(
            lambda found: (
                found.keys() == set(replica_ids) and all(each.state == READY and each.process.phase == RUNNING for each in found.values())
            )
        )

    async def status(self, model: str) -> pb.DeploymentStatus:
        response = await self.stub.ListDeployments(pb.ListDeploymentsRequest(), timeout=CALL_S)
        return {each.deployment.model: each for each in response.deployments}[model]

    async def until_status(self, model: str, wanted: Callable[[pb.DeploymentStatus], bool]) -> pb.DeploymentStatus:
        async def ask() -> pb.DeploymentStatus:
            return await self.status(model)

        return await eventually(ask, wanted)

    async def explain(self, model: str) -> list[str]:
        return list((await self.stub.Explain(pb.ExplainRequest(model=model), timeout=CALL_S)).decisions)


async def eventually(ask, wanted, timeout_s: float = WAIT_S):  # type: ignore[no-untyped-def]
    """Asks again and again, the registry's absence included, until the answer is as wanted."""
    answer = None
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                try:
                    answer = await ask()
                    if wanted(answer):
                        return answer
                except grpc.aio.AioRpcError as error:
                    answer = error.details()
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"not seen within {timeout_s} s; the last answer was: {answer}") from None
