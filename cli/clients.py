"""Typed wrappers round the gRPC calls behind the commands; every call has a deadline and raises InferwayError."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from cli.errors import CommandError
from deploy.local.settings import Settings
from inferway.common.v1 import registry_pb2
from inferway.edge.v1 import admin_pb2, admin_pb2_grpc
from inferway.metering.v1 import metering_pb2, metering_pb2_grpc
from inferway.scheduler.v1 import scheduler_pb2, scheduler_pb2_grpc
from services.kit import channel, status

R = TypeVar("R")
MAX_COUNT = 2**32 - 1
"""Largest count or number of seconds that fits the messages."""

_TIMEOUT_S = 10.0
_PAGE_SIZE = 1000


async def _call(method: Callable[..., Awaitable[R]], request: Message, metadata: Sequence[tuple[str, str]] = ()) -> R:
    try:
        return await method(request, timeout=_TIMEOUT_S, metadata=tuple(metadata))
    except grpc.aio.AioRpcError as error:
        raise status.from_rpc_error(error) from error


class Admin:
    """Tenants and keys, with the operator's key."""

    def __init__(self, connection: grpc.aio.Channel, operator_key: str) -> None:
        self._stub: Any = admin_pb2_grpc.AdminStub(connection)
        self._metadata = (("authorization", f"Bearer {operator_key}"),)

    async def create_tenant(self, tenant_id: str) -> None:
        """Make a tenant; AlreadyExists when the id is taken."""
        await _call(self._stub.CreateTenant, admin_pb2.CreateTenantRequest(tenant_id=tenant_id, display_name=tenant_id), self._metadata)

    async def create_key(self, request: admin_pb2.CreateApiKeyRequest) -> admin_pb2.CreateApiKeyResponse:
        """Make a key; the secret is in the answer and nowhere else."""
        answer: admin_pb2.CreateApiKeyResponse = await _call(self._stub.CreateApiKey, request, self._metadata)
        return answer

    async def keys(self, tenant_id: str) -> list[registry_pb2.ApiKey]:
        """Every key of a tenant, or of all when it is empty."""
        found: list[registry_pb2.ApiKey] = []
        token = ""
        while True:
            request = admin_pb2.ListApiKeysRequest(tenant_id=tenant_id, page_size=_PAGE_SIZE, page_token=token)
            answer: admin_pb2.ListApiKeysResponse = await _call(self._stub.ListApiKeys, request, self._metadata)
            found += answer.keys
            token = answer.next_page_token
            if not token:
                return found

    async def revoke_key(self, key_id: str) -> None:
        """Stop a key; every gateway knows within 2 seconds."""
        await _call(self._stub.RevokeApiKey, admin_pb2.RevokeApiKeyRequest(key_id=key_id), self._metadata)


class ControlPlane:
    """Desired state and what is observed of it."""

    def __init__(self, connection: grpc.aio.Channel) -> None:
        self._stub: Any = scheduler_pb2_grpc.ControlPlaneStub(connection)

    async def deploy(self, deployment: registry_pb2.Deployment) -> registry_pb2.Deployment:
        """Create or change a deployment; returns what is stored."""
        answer: scheduler_pb2.DeployResponse = await _call(self._stub.Deploy, scheduler_pb2.DeployRequest(deployment=deployment))
        return answer.deployment

    async def scale(self, model: str, num_replicas: int) -> registry_pb2.Deployment:
        """Set the number of replicas; NotFound when the model is not deployed."""
        request = scheduler_pb2.ScaleRequest(model=model, num_replicas=num_replicas)
        answer: scheduler_pb2.ScaleResponse = await _call(self._stub.Scale, request)
        return answer.deployment

    async def drain(self, request: scheduler_pb2.DrainRequest) -> list[str]:
        """Begin to drain; returns the replicas that drain now. NotFound when nobody knows the replica or the node."""
        answer: scheduler_pb2.DrainResponse = await _call(self._stub.Drain, request)
        return list(answer.replica_ids)

    async def uncordon(self, node_id: str) -> None:
        """Let a drained node get replicas again; NotFound when nobody knows it."""
        await _call(self._stub.Uncordon, scheduler_pb2.UncordonRequest(node_id=node_id))

    async def deployments(self) -> list[scheduler_pb2.DeploymentStatus]:
        """Every deployment by model."""
        request = scheduler_pb2.ListDeploymentsRequest()
        answer: scheduler_pb2.ListDeploymentsResponse = await _call(self._stub.ListDeployments, request)
        return list(answer.deployments)

    async def assignments(self) -> list[scheduler_pb2.AssignmentStatus]:
        """Every replica that a node has to run."""
        request = scheduler_pb2.ListAssignmentsRequest()
        answer: scheduler_pb2.ListAssignmentsResponse = await _call(self._stub.ListAssignments, request)
        return list(answer.assignments)


class Ledger:
    """The usage ledger, read only."""

    def __init__(self, connection: grpc.aio.Channel) -> None:
        self._stub: Any = metering_pb2_grpc.UsageStub(connection)

    async def usage(self, request: metering_pb2.QueryUsageRequest) -> list[metering_pb2.UsageRow]:
        """Sums by the asked dimensions."""
        answer: metering_pb2.QueryUsageResponse = await _call(self._stub.QueryUsage, request)
        return list(answer.rows)

    async def requests(self, request: metering_pb2.ListRequestsRequest) -> list[metering_pb2.LedgerRequest]:
        """One page of requests, newest first."""
        answer: metering_pb2.ListRequestsResponse = await _call(self._stub.ListRequests, request)
        return list(answer.requests)


@asynccontextmanager
async def admin(settings: Settings, operator_key: str) -> AsyncIterator[Admin]:
    """Connect to the gateway of this mesh; CommandError when there is no operator's key."""
    if not operator_key:
        raise CommandError("There is no operator's key for this mesh.", "Run `inferway up` first, or set INFERWAY_OPERATOR_KEY.")
    async with channel.connect(f"127.0.0.1:{settings.ports.gateway_grpc}") as connection:
        yield Admin(connection, operator_key)


@asynccontextmanager
async def control_plane(settings: Settings) -> AsyncIterator[ControlPlane]:
    """Connect to the scheduler of this mesh."""
    async with channel.connect(settings.scheduler_address) as connection:
        yield ControlPlane(connection)


@asynccontextmanager
async def ledger(settings: Settings) -> AsyncIterator[Ledger]:
    """Connect to the metering service of this mesh."""
    async with channel.connect(f"127.0.0.1:{settings.ports.metering_grpc}") as connection:
        yield Ledger(connection)
