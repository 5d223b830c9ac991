"""The operators' face: tenants and keys."""

from inferway.common.v1 import registry_pb2
from inferway.edge.v1 import admin_pb2, admin_pb2_grpc
from services.gateway.admin import AdminDesk, KeyRecord, TenantRecord
from services.gateway.keys import Keys
from services.gateway.servicer.metadata import Context, authorization
from services.kit.errors import Unimplemented


class AdminServicer(admin_pb2_grpc.AdminServicer):
    """See edge/v1/admin.proto. Every method needs an operator's key."""

    def __init__(self, desk: AdminDesk, keys: Keys) -> None:
        self._desk = desk
        self._keys = keys

    async def CreateTenant(self, request: admin_pb2.CreateTenantRequest, context: Context) -> admin_pb2.CreateTenantResponse:
        """A new tenant."""
        self._keys.authenticate_admin(authorization(context))
        tenant = await self._desk.create_tenant(request.tenant_id, request.display_name)
        return admin_pb2.CreateTenantResponse(tenant=_tenant(tenant))

    async def ListTenants(self, request: admin_pb2.ListTenantsRequest, context: Context) -> admin_pb2.ListTenantsResponse:
        """One page of tenants."""
        self._keys.authenticate_admin(authorization(context))
        page_size = request.page_size if request.HasField("page_size") else None
        tenants, next_page_token = await self._desk.list_tenants(page_size, request.page_token)
        return admin_pb2.ListTenantsResponse(tenants=map(_tenant, tenants), next_page_token=next_page_token)

    async def CreateApiKey(self, request: admin_pb2.CreateApiKeyRequest, context: Context) -> admin_pb2.CreateApiKeyResponse:
        """A new key, with its secret."""
        self._keys.authenticate_admin(authorization(context))
        expires = request.expires_unix_ms if request.HasField("expires_unix_ms") else None
        key, secret = await self._desk.create_key(request.tenant_id, request.display_name, request.models, expires, request.admin)
        return admin_pb2.CreateApiKeyResponse(key=_key(key), secret=secret)

    async def ListApiKeys(self, request: admin_pb2.ListApiKeysRequest, context: Context) -> admin_pb2.ListApiKeysResponse:
        """One page of keys."""
        self._keys.authenticate_admin(authorization(context))
        page_size = request.page_size if request.HasField("page_size") else None
        keys, next_page_token = await self._desk.list_keys(request.tenant_id, page_size, request.page_token)
        return admin_pb2.ListApiKeysResponse(keys=map(_key, keys), next_page_token=next_page_token)

    async def RevokeApiKey(self, request: admin_pb2.RevokeApiKeyRequest, context: Context) -> admin_pb2.RevokeApiKeyResponse:
        """Ends a key."""
        self._keys.authenticate_admin(authorization(context))
        await self._desk.revoke_key(request.key_id)
        return admin_pb2.RevokeApiKeyResponse()

    async def SetTenantLimits(self, request: admin_pb2.SetTenantLimitsRequest, context: Context) -> admin_pb2.SetTenantLimitsResponse:
        """Not served yet."""
        self._keys.authenticate_admin(authorization(context))
        raise Unimplemented("limits of tenants are not served yet; every tenant is unlimited")


def _tenant(tenant: TenantRecord) -> registry_pb2.Tenant:
    return registry_pb2.Tenant(tenant_id=tenant.tenant_id, display_name=tenant.display_name, created_unix_ms=tenant.created_unix_ms)


def _key(key: KeyRecord) -> registry_pb2.ApiKey:
    return registry_pb2.ApiKey(
        key_id=key.key_id,
        tenant_id=key.tenant_id,
        display_name=key.display_name,
        models=key.models,
        expires_unix_ms=key.expires_unix_ms,
        created_unix_ms=key.created_unix_ms,
        admin=key.admin,
    )
