"""The node in the registry: what it is told to run, and what it says of itself."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence

from inferway.common.v1 import registry_pb2 as pb
from services.engine.node.machine import Machine
from services.engine.node.order import Order, Phase, SlotStatus
from services.kit import keyspace
from services.kit.etcd import EtcdClient, LeaseKeeper
from services.kit.registration import Registration
from services.kit.registry import Change, PrefixView

log = logging.getLogger(__name__)

_PHASES = {
    Phase.STARTING: pb.REPLICA_PROCESS_PHASE_STARTING,
    Phase.RUNNING: pb.REPLICA_PROCESS_PHASE_RUNNING,
    Phase.BACKING_OFF: pb.REPLICA_PROCESS_PHASE_BACKING_OFF,
    Phase.DRAINING: pb.REPLICA_PROCESS_PHASE_DRAINING,
    Phase.STOPPED: pb.REPLICA_PROCESS_PHASE_STOPPED,
}


class NodeRegistry:
    """Both directions of one node; made inside the event loop. `run` keeps them alive, whatever the registry does."""

    def __init__(self, client: EtcdClient, machine: Machine, address: str, lease_ttl_s: int) -> None:
        self._machine = machine
        self._address = address
        self._prefix = keyspace.assignments(machine.node_id)
        self._view = PrefixView(client, self._prefix, pb.Assignment)
        self._keeper = LeaseKeeper(client)
        self._cached_models: tuple[str, ...] = ()
        self._statuses: tuple[SlotStatus, ...] = ()
        self._registration = Registration(client, self._keeper, keyspace.node(machine.node_id), self._message(), ttl_s=lease_ttl_s)

    async def run(self) -> None:
        """Until cancelled; the node is then taken out of the registry."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keeper.run())
            tasks.create_task(self._view.run())
            tasks.create_task(self._registration.run())

    async def wait_registered(self) -> None:
        """Waits until the registry holds what the node says."""
        await self._registration.wait_registered()

    def report(self, statuses: Sequence[SlotStatus]) -> None:
        """Says what happens in the slots."""
        if self._statuses != tuple(statuses):
            self._statuses = tuple(statuses)
            self._registration.update(self._message())

    def report_models(self, cached_models: Sequence[str]) -> None:
        """Says which weights the node's store holds, as name@version."""
        if self._cached_models != tuple(cached_models):
            self._cached_models = tuple(cached_models)
            self._registration.update(self._message())

    async def orders(self) -> AsyncIterator[Mapping[str, Order]]:
        """The whole of what the node has to run, first when it is known and then at every change. While the registry is away the
        last orders stand."""
        changed = asyncio.Event()

        def note(_change: Change[pb.Assignment]) -> None:
            changed.set()

        unsubscribe = self._view.subscribe(note)
        try:
            await self._view.wait_ready()
            while True:
                changed.clear()
                yield self._read()
                await changed.wait()
        finally:
            unsubscribe()

    def _read(self) -> dict[str, Order]:
        orders: dict[str, Order] = {}
        for key, message in self._view.snapshot().items():
            replica_id = key.removeprefix(self._prefix)
            if message.replica_id == replica_id and message.node_id == self._machine.node_id:
                orders[replica_id] = order_from_proto(message)
            else:
                log.error("assignment does not belong to its key and is skipped", extra={"fields": {"key": key}})
        return orders

    def _message(self) -> pb.Node:
        machine = self._machine
        return pb.Node(
            node_id=machine.node_id,
            host=machine.host,
            devices=[pb.Device(kind=each.kind, index=each.index, memory_bytes=each.memory_bytes) for each in machine.devices],
            memory_bytes=machine.memory_bytes,
            failure_domain=machine.failure_domain,
            cached_models=self._cached_models,
            max_num_replicas=machine.max_num_replicas,
            address=self._address,
            processes=[status_to_proto(status) for status in self._statuses],
        )


def order_from_proto(message: pb.Assignment) -> Order:
    """Every field but the node's name."""
    return Order(
        replica_id=message.replica_id,
        model=message.model,
        model_version=message.model_version,
        device_indexes=tuple(message.device_indexes),
        engine_settings=dict(message.engine_settings),
        drain_timeout_s=message.drain_timeout_s,
        draining=message.draining,
        drain_deadline_unix_ms=message.drain_deadline_unix_ms,
    )


def status_to_proto(status: SlotStatus) -> pb.ReplicaProcess:
    """Every field."""
    return pb.ReplicaProcess(
        replica_id=status.replica_id, phase=_PHASES[status.phase], num_restarts=status.num_restarts, last_exit=status.last_exit
    )
