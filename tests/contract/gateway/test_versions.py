"""Which version of a model a request is tokenised for: the deployed one as soon as a replica is ready with it, else the one that runs."""

import json

import grpc

from inferway.common.v1 import registry_pb2
from services.kit import keyspace
from tests.contract.gateway.conftest import Mesh
from tests.harness.eventually import eventually
from tests.harness.gateway_service import RunningGateway, collect, request, to_json
from tests.harness.tiny_model import NAME, write_tiny_model

READY, DRAINING = registry_pb2.REPLICA_STATE_READY, registry_pb2.REPLICA_STATE_DRAINING


async def register(mesh: Mesh, replica_id: str, version: str, state: registry_pb2.ReplicaState = READY) -> None:
    replica = registry_pb2.Replica(replica_id=replica_id, model=NAME, model_version=version, state=state)
    await mesh.client.put(keyspace.replica(NAME, replica_id), to_json(replica))


async def until_served(gateway: RunningGateway, mesh: Mesh, version: str) -> None:
    async def is_served() -> bool:
        document = json.loads(await collect(gateway.chat(request())))
        assert document["system_fingerprint"] == f"fp_{mesh.router.wants[-1].model_version}"
        return mesh.router.wants[-1].model_version == version

    await eventually(is_served, 10)


async def test_version_follows_deployment_and_ready_replicas(gateway: RunningGateway, mesh: Mesh) -> None:
    await collect(gateway.chat(request()))
    old = mesh.router.wants[-1].model_version
    new = write_tiny_model(mesh.home, max_context_tokens=1024).version
    await register(mesh, "r1", old)
    deployment = registry_pb2.Deployment(model=NAME, model_version=new, num_replicas=1, generation=2)
    await mesh.client.put(keyspace.deployment(NAME), to_json(deployment))
    await until_served(gateway, mesh, old)
    await register(mesh, "r2", new)
    await until_served(gateway, mesh, new)
    await register(mesh, "r2", new, DRAINING)
    await until_served(gateway, mesh, old)


async def test_model_that_is_no_longer_deployed_is_not_found(gateway: RunningGateway, mesh: Mesh) -> None:
    await collect(gateway.chat(request()))
    await mesh.client.delete(keyspace.deployment(NAME))

    async def is_refused() -> bool:
        try:
            await collect(gateway.chat(request()))
        except grpc.aio.AioRpcError as error:
            return error.code() is grpc.StatusCode.NOT_FOUND
        return False

    await eventually(is_refused, 10)
