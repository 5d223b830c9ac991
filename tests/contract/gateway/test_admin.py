"""Operators make tenants and keys over gRPC; nobody else may, and secrets are shown once."""

from typing import Any

import grpc
import pytest

from inferway.edge.v1 import admin_pb2 as pb
from services.kit import keyspace, status
from services.kit.errors import InferwayError
from tests.contract.gateway.conftest import Mesh
from tests.harness.eventually import eventually
from tests.harness.gateway_service import ADMIN_SECRET, SECRET, RunningGateway, collect, credentials, request

CALLS = [
    ("CreateTenant", pb.CreateTenantRequest(tenant_id="new")),
    ("ListTenants", pb.ListTenantsRequest()),
    ("CreateApiKey", pb.CreateApiKeyRequest(tenant_id="acme")),
    ("ListApiKeys", pb.ListApiKeysRequest()),
    ("RevokeApiKey", pb.RevokeApiKeyRequest(key_id="key_acme")),
    ("SetTenantLimits", pb.SetTenantLimitsRequest(tenant_id="acme")),
]


async def ask(gateway: RunningGateway, method: str, message: Any, secret: str | None = ADMIN_SECRET) -> Any:
    return await getattr(gateway.admin, method)(message, metadata=credentials(secret), timeout=10)


async def refusal(gateway: RunningGateway, method: str, message: Any, secret: str | None = ADMIN_SECRET) -> InferwayError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await ask(gateway, method, message, secret)
    return status.from_rpc_error(caught.value)


@pytest.mark.parametrize(("method", "message"), CALLS, ids=[method for method, _ in CALLS])
async def test_admin_ordinary_keys_and_strangers_may_do_nothing(gateway: RunningGateway, method: str, message: Any) -> None:
    error = await refusal(gateway, method, message, SECRET)
    assert error.code == "PERMISSION_DENIED"
    assert "acme" not in error.message
    assert (await refusal(gateway, method, message, None)).code == "UNAUTHENTICATED"
    await collect(gateway.chat(request()))


async def test_admin_new_key_of_a_new_tenant_works_until_it_is_revoked(gateway: RunningGateway) -> None:
    tenant = (await ask(gateway, "CreateTenant", pb.CreateTenantRequest(tenant_id="new", display_name="New"))).tenant
    assert (tenant.tenant_id, tenant.display_name, tenant.cache_salt) == ("new", "New", b"")
    made = await ask(gateway, "CreateApiKey", pb.CreateApiKeyRequest(tenant_id="new", display_name="laptop", models=["tiny"]))
    assert (made.key.tenant_id, list(made.key.models), made.key.admin) == ("new", ["tiny"], False)

    async def works() -> bool:
        try:
            await collect(gateway.chat(request(), secret=made.secret))
        except grpc.aio.AioRpcError as error:
            assert error.code() in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNAVAILABLE)
            return False
        return True

    async def is_revoked() -> bool:
        return not await works()

    await eventually(works)
    assert (await gateway.records())[-1].key_id == made.key.key_id
    await ask(gateway, "RevokeApiKey", pb.RevokeApiKeyRequest(key_id=made.key.key_id))
    await eventually(is_revoked, 2.0)
    assert (await refusal(gateway, "RevokeApiKey", pb.RevokeApiKeyRequest(key_id=made.key.key_id))).code == "NOT_FOUND"


async def test_admin_lists_show_neither_salts_nor_secrets(gateway: RunningGateway) -> None:
    made = await ask(gateway, "CreateApiKey", pb.CreateApiKeyRequest(tenant_id="acme", expires_unix_ms=4_000_000_000_000))
    tenants = await ask(gateway, "ListTenants", pb.ListTenantsRequest())
    keys = await ask(gateway, "ListApiKeys", pb.ListApiKeysRequest(tenant_id="acme"))
    assert [tenant.tenant_id for tenant in tenants.tenants] == ["acme", "other"]
    assert all(not tenant.cache_salt for tenant in tenants.tenants)
    assert made.key in keys.keys
    assert made.secret not in str(keys)
    assert {key.tenant_id for key in keys.keys} == {"acme"}


async def test_admin_faults_of_the_caller_are_named(gateway: RunningGateway) -> None:
    taken = pb.CreateTenantRequest(tenant_id="acme")
    assert (await refusal(gateway, "CreateTenant", taken)).code == "ALREADY_EXISTS"
    error = await refusal(gateway, "CreateTenant", pb.CreateTenantRequest(tenant_id="a:b"))
    assert (error.code, error.metadata["param"]) == ("INVALID_ARGUMENT", "tenant_id")
    assert (await refusal(gateway, "CreateApiKey", pb.CreateApiKeyRequest(tenant_id="nobody"))).code == "NOT_FOUND"
    error = await refusal(gateway, "CreateApiKey", pb.CreateApiKeyRequest(tenant_id="acme", expires_unix_ms=1))
    assert error.metadata["param"] == "expires_unix_ms"
    error = await refusal(gateway, "ListApiKeys", pb.ListApiKeysRequest(page_size=5000))
    assert error.metadata["param"] == "page_size"


async def test_admin_limits_are_not_served_yet(gateway: RunningGateway) -> None:
    error = await refusal(gateway, "SetTenantLimits", pb.SetTenantLimitsRequest(tenant_id="acme"))
    assert (error.code, error.reason) == ("UNIMPLEMENTED", "UNIMPLEMENTED")


async def test_admin_one_unreadable_record_does_not_keep_other_keys_from_being_listed_and_revoked(
    gateway: RunningGateway, mesh: Mesh
) -> None:
    await mesh.client.put(keyspace.api_key("0" * 64), b"no json")
    await mesh.client.put(keyspace.tenant("aaa"), b"no json")
    listed = await ask(gateway, "ListApiKeys", pb.ListApiKeysRequest(tenant_id="acme"))
    assert {key.key_id for key in listed.keys} == {"key_acme", "key_limited"}
    assert "acme" in {tenant.tenant_id for tenant in (await ask(gateway, "ListTenants", pb.ListTenantsRequest())).tenants}
    await ask(gateway, "RevokeApiKey", pb.RevokeApiKeyRequest(key_id="key_acme"))
