"""Keys while the gateway runs: made, revoked and expired on open connections; and a registry that is away is no bad key."""

import time
from pathlib import Path

import grpc
import pytest

from inferway.common.v1 import registry_pb2
from inferway.edge.v1 import admin_pb2
from services.gateway import ids
from services.kit import keyspace
from services.kit.errors import ConfigError
from tests.contract.gateway.conftest import Mesh, open_mesh
from tests.harness.etcd import EtcdServer
from tests.harness.eventually import eventually
from tests.harness.gateway_service import SECRET, RunningGateway, collect, credentials, refusal, request, to_json

REVOCATION_BOUND_S = 2.0


async def works(gateway: RunningGateway, secret: str) -> bool:
    """Asks over the connection that is open."""
    try:
        await collect(gateway.chat(request(), secret=secret))
    except grpc.aio.AioRpcError as error:
        assert error.code() is grpc.StatusCode.UNAUTHENTICATED
        return False
    return True


async def test_key_that_is_revoked_stops_on_open_connections_in_time(gateway: RunningGateway, mesh: Mesh) -> None:
    assert await works(gateway, SECRET)
    await mesh.client.delete(keyspace.api_key(ids.secret_sha256(SECRET)))

    async def refused() -> bool:
        return not await works(gateway, SECRET)

    await eventually(refused, REVOCATION_BOUND_S)


async def test_key_that_is_made_works_at_once_and_expires_in_time(gateway: RunningGateway, mesh: Mesh) -> None:
    secret = ids.new_secret()
    expires = time.time_ns() // 1_000_000 + 1_000
    key = registry_pb2.ApiKey(key_id="key_new", tenant_id="acme", expires_unix_ms=expires)
    await mesh.client.put(keyspace.api_key(ids.secret_sha256(secret)), to_json(key))
    await eventually(lambda: works(gateway, secret), REVOCATION_BOUND_S)

    async def refused() -> bool:
        return not await works(gateway, secret)

    await eventually(refused, 1.0 + REVOCATION_BOUND_S)
    assert time.time_ns() // 1_000_000 >= expires


async def test_registry_that_is_away_leaves_known_keys_working_and_calls_none_bad(tmp_path: Path) -> None:
    etcd = EtcdServer(tmp_path / "etcd")
    await etcd.start()
    try:
        async with open_mesh(etcd, tmp_path / "home") as mesh:
            await mesh.add_engine()
            gateway = await mesh.start_gateway()
            new = ids.new_secret()
            etcd.kill()
            await eventually(lambda: not gateway.service.keys_live)
            assert await works(gateway, SECRET)
            _, error, trailers = await refusal(gateway.chat(request(), secret=new))
            assert (trailers["x-http-status"], error["code"], trailers["retry-after"]) == ("503", "key_store_unavailable", "1")
            await etcd.start()
            key = registry_pb2.ApiKey(key_id="key_new", tenant_id="acme")
            await mesh.client.put(keyspace.api_key(ids.secret_sha256(new)), to_json(key))
            await eventually(lambda: gateway.service.keys_live)
            await eventually(lambda: works(gateway, new))
    finally:
        etcd.kill()


async def test_operator_key_of_the_start_up_file_is_made_once(mesh: Mesh, tmp_path: Path) -> None:
    secret = ids.new_secret()
    file = tmp_path / "operator-key"
    file.write_text(secret + "\n")
    for _ in range(2):
        gateway = await mesh.start_gateway(bootstrap_admin_key_file=str(file))
        await eventually(lambda gateway=gateway: may_operate(gateway, secret))
    found = await mesh.client.get(keyspace.api_key(ids.secret_sha256(secret)))
    assert found is not None
    assert found.create_revision == found.mod_revision


async def may_operate(gateway: RunningGateway, secret: str) -> bool:
    try:
        await gateway.admin.ListTenants(admin_pb2.ListTenantsRequest(), metadata=credentials(secret), timeout=10)
    except grpc.aio.AioRpcError as error:
        assert error.code() is grpc.StatusCode.UNAUTHENTICATED
        return False
    return True


async def test_operator_key_file_that_is_missing_is_told_at_start(mesh: Mesh, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="BOOTSTRAP_ADMIN_KEY_FILE"):
        await mesh.start_gateway(bootstrap_admin_key_file=str(tmp_path / "absent"))
