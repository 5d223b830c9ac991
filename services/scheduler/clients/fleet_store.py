"""The fleet in etcd: reads it whole, writes it under guards, and tells when it may have changed."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from google.protobuf.message import Message

from inferway.common.v1 import registry_pb2 as pb
from inferway.scheduler.v1 import scheduler_pb2
from services.kit import keyspace
from services.kit.etcd import EtcdClient, EtcdError, Leadership, txn
from services.scheduler.clients import fleet_values as values
from services.scheduler.fleet import Assignment, Deployment, Fleet
from services.scheduler.plan import Change, Place, Remove

log = logging.getLogger(__name__)

M = TypeVar("M", bound=Message)

_RETRY_S = 0.5
_WATCHED: tuple[Callable[[], str], ...] = (
    keyspace.deployments,
    keyspace.nodes,
    keyspace.assignments,
    keyspace.replicas,
    keyspace.cordons,
)


class EtcdFleetStore:
    """FleetStore over etcd. Values that do not parse, or that belong under another key, are skipped and logged by key."""

    def __init__(self, client: EtcdClient) -> None:
        self._client = client

    async def read(self) -> Fleet:
        """See FleetStore. Assignments are read first: a replica or node that appears meanwhile only adds to what is known of them."""
        assignments = await self._list(keyspace.assignments(), pb.Assignment, lambda m: f"{m.node_id}/{m.replica_id}")
        deployments = await self._list(keyspace.deployments(), pb.Deployment, lambda m: m.model)
        nodes = [values.node_from_proto(message) for message in await self.list_nodes()]
        replicas = await self._list(keyspace.replicas(), pb.Replica, lambda m: f"{m.model}/{m.replica_id}")
        cordons = await self._list(keyspace.cordons(), pb.Cordon, lambda m: m.node_id)
        return Fleet(
            deployments={message.model: values.deployment_from_proto(message, revision) for message, revision in deployments},
            nodes={each.node_id: each for each in nodes},
            assignments=tuple(values.assignment_from_proto(message, revision) for message, revision in assignments),
            replicas={message.replica_id: values.replica_from_proto(message) for message, _ in replicas},
            cordoned=frozenset(message.node_id for message, _ in cordons),
        )

    async def list_nodes(self) -> list[pb.Node]:
        """The registered nodes as they are stored, by id."""
        return [message for message, _ in await self._list(keyspace.nodes(), pb.Node, lambda m: m.node_id)]

    async def apply(self, change: Change, leadership: Leadership) -> bool:
        """See FleetStore."""
        assignment = change.assignment
        key = keyspace.assignment(assignment.node_id, assignment.replica_id)
        revision = 0 if isinstance(change, Place) else assignment.revision
        operation = txn.delete(key) if isinstance(change, Remove) else txn.put(key, values.encode(values.assignment_to_proto(assignment)))
        result = await self._client.txn([leadership.guard(), txn.unchanged_since(key, revision)], [operation])
        return result.succeeded

    async def read_deployment(self, model: str) -> Deployment | None:
        """See FleetStore."""
        kv = await self._client.get(keyspace.deployment(model))
        message = values.decode(kv.value, pb.Deployment()) if kv is not None else None
        return values.deployment_from_proto(message, kv.mod_revision) if kv is not None and message is not None else None

    async def write_deployment(self, deployment: Deployment) -> bool:
        """See FleetStore."""
        key = keyspace.deployment(deployment.model)
        value = values.encode(values.deployment_to_proto(deployment))
        return (await self._client.txn([txn.unchanged_since(key, deployment.revision)], [txn.put(key, value)])).succeeded

    async def delete_deployment(self, deployment: Deployment) -> bool:
        """See FleetStore."""
        key = keyspace.deployment(deployment.model)
        return (await self._client.txn([txn.unchanged_since(key, deployment.revision)], [txn.delete(key)])).succeeded

    async def write_assignment(self, assignment: Assignment) -> bool:
        """See FleetStore."""
        key = keyspace.assignment(assignment.node_id, assignment.replica_id)
        value = values.encode(values.assignment_to_proto(assignment))
        return (await self._client.txn([txn.unchanged_since(key, assignment.revision)], [txn.put(key, value)])).succeeded

    async def cordon(self, node_id: str, since_unix_ms: int) -> None:
        """See FleetStore. A second call keeps the first one's time."""
        key = keyspace.cordon(node_id)
        value = values.encode(pb.Cordon(node_id=node_id, since_unix_ms=since_unix_ms))
        await self._client.txn([txn.absent(key)], [txn.put(key, value)])

    async def uncordon(self, node_id: str) -> None:
        """See FleetStore."""
        await self._client.delete(keyspace.cordon(node_id))

    async def read_decisions(self, model: str) -> list[str]:
        """See FleetStore."""
        kv = await self._client.get(keyspace.decisions(model))
        kept = values.decode(kv.value, scheduler_pb2.ExplainResponse()) if kv is not None else None
        return list(kept.decisions) if kept is not None else []

    async def write_decisions(self, model: str, sentences: Sequence[str], leadership: Leadership) -> bool:
        """See FleetStore."""
        value = values.encode(scheduler_pb2.ExplainResponse(decisions=sentences))
        return (await self._client.txn([leadership.guard()], [txn.put(keyspace.decisions(model), value)])).succeeded

    async def follow(self, on_change: Callable[[], None]) -> None:
        """See FleetStore."""
        async with asyncio.TaskGroup() as watches:
            for prefix in _WATCHED:
                watches.create_task(self._watch(prefix(), on_change))

    async def _watch(self, prefix: str, on_change: Callable[[], None]) -> None:
        """Endless; what was missed while the watch began anew is told as one change."""
        while True:
            try:
                async with self._client.watch(prefix, prefix=True) as watch:
                    on_change()
                    async for _ in watch:
                        on_change()
            except EtcdError as error:
                log.warning("watch starts anew", extra={"fields": {"prefix": prefix, "error": error.message}})
                await asyncio.sleep(_RETRY_S)

    async def _list(self, prefix: str, message_type: type[M], name_of: Callable[[M], str]) -> list[tuple[M, int]]:
        """Messages and their revisions; each has to name itself as its key does."""
        found: list[tuple[M, int]] = []
        for kv in (await self._client.get_prefix(prefix)).kvs:
            message = values.decode(kv.value, message_type())
            if message is None or prefix + name_of(message) != kv.key:
                log.error("registry value does not fit its key and is skipped", extra={"fields": {"key": kv.key}})
            else:
                found.append((message, kv.mod_revision))
        return found
