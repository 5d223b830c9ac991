"""What operators may create, and what they may not: names that could collide, keys for nobody, keys that are born dead."""

from dataclasses import dataclass, field

import pytest

from services.gateway import ids
from services.gateway.admin import AdminDesk, KeyRecord, TenantRecord
from services.kit.errors import AlreadyExists, FieldError, NotFound
from tests.harness.gateway_fakes import FakeClock


@dataclass
class MemoryAdminStore:
    """An AdminStore in memory."""

    tenant_records: dict[str, TenantRecord] = field(default_factory=dict)
    key_records: dict[str, KeyRecord] = field(default_factory=dict)

    async def create_tenant(self, tenant: TenantRecord) -> bool:
        return self.tenant_records.setdefault(tenant.tenant_id, tenant) is tenant

    async def tenants(self) -> list[TenantRecord]:
        return list(self.tenant_records.values())

    async def create_key(self, sha256: str, key: KeyRecord) -> bool:
        if key.tenant_id in self.tenant_records:
            self.key_records[sha256] = key
        return key.tenant_id in self.tenant_records

    async def keys(self) -> list[KeyRecord]:
        return list(self.key_records.values())

    async def delete_key(self, key_id: str) -> bool:
        found = [sha256 for sha256, key in self.key_records.items() if key.key_id == key_id]
        for sha256 in found:
            del self.key_records[sha256]
        return bool(found)


@pytest.fixture
def store() -> MemoryAdminStore:
    return MemoryAdminStore()


@pytest.fixture
def desk(store: MemoryAdminStore) -> AdminDesk:
    return AdminDesk(store, FakeClock(unix_ms=1_000))


async def test_create_tenant_has_its_own_secret_salt(desk: AdminDesk) -> None:
    first, second = await desk.create_tenant("a", "A"), await desk.create_tenant("b", "B")
    assert (len(first.cache_salt), first.created_unix_ms) == (32, 1_000)
    assert first.cache_salt != second.cache_salt


async def test_create_tenant_taken_id_is_refused(desk: AdminDesk) -> None:
    await desk.create_tenant("a", "")
    with pytest.raises(AlreadyExists):
        await desk.create_tenant("a", "")


@pytest.mark.parametrize("tenant_id", ["", "A", "a:b", "a/b", "a|b", "a\0", "\u0430", "-a", "a b", "a.b", "a_b", "a" * 65, "a\n"])
async def test_create_tenant_name_that_could_collide_is_refused(desk: AdminDesk, tenant_id: str) -> None:
    with pytest.raises(FieldError) as caught:
        await desk.create_tenant(tenant_id, "")
    assert caught.value.param == "tenant_id"


async def test_create_key_stores_only_the_hash_of_the_secret(desk: AdminDesk, store: MemoryAdminStore) -> None:
    await desk.create_tenant("a", "")
    key, secret = await desk.create_key("a", "laptop", ["m1"], 2_000, admin=False)
    assert store.key_records == {ids.secret_sha256(secret): key}
    assert secret not in repr(store)
    assert (key.tenant_id, key.models, key.expires_unix_ms, key.admin) == ("a", ("m1",), 2_000, False)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"models": ["M1"]}, "models[0]"),
        ({"models": ["m", ""]}, "models[1]"),
        ({"models": ["m"] * 1001}, "models"),
        ({"expires_unix_ms": 1_000}, "expires_unix_ms"),
        ({"expires_unix_ms": 0}, "expires_unix_ms"),
        ({"display_name": "x" * 201}, "display_name"),
        ({"tenant_id": "../a"}, "tenant_id"),
    ],
)
async def test_create_key_wrong_field_is_named(desk: AdminDesk, fields: dict[str, object], param: str) -> None:
    await desk.create_tenant("a", "")
    values = {"tenant_id": "a", "display_name": "", "models": [], "expires_unix_ms": None, "admin": False, **fields}
    with pytest.raises(FieldError) as caught:
        await desk.create_key(**values)  # type: ignore[arg-type]
    assert caught.value.param == param


async def test_create_key_for_no_tenant_is_not_found(desk: AdminDesk) -> None:
    with pytest.raises(NotFound):
        await desk.create_key("nobody", "", [], None, admin=False)


async def test_revoke_key_works_once(desk: AdminDesk) -> None:
    await desk.create_tenant("a", "")
    key, _ = await desk.create_key("a", "", [], None, admin=False)
    await desk.revoke_key(key.key_id)
    with pytest.raises(NotFound):
        await desk.revoke_key(key.key_id)


async def test_list_pages_hold_every_row_once(desk: AdminDesk) -> None:
    names = [f"t{number:02}" for number in range(7)]
    for name in reversed(names):
        await desk.create_tenant(name, "")
    seen, token = [], ""
    while True:
        page, token = await desk.list_tenants(3, token)
        seen += [tenant.tenant_id for tenant in page]
        assert len(page) <= 3
        if not token:
            break
    assert seen == names


async def test_list_keys_of_one_tenant_shows_no_other(desk: AdminDesk) -> None:
    for tenant in ("a", "b"):
        await desk.create_tenant(tenant, "")
        for _ in range(3):
            await desk.create_key(tenant, "", [], None, admin=False)
    keys, token = await desk.list_keys("a", None, "")
    assert ([key.tenant_id for key in keys], token) == (["a"] * 3, "")
    keys, token = await desk.list_keys("a", 2, "")
    rest, end = await desk.list_keys("a", 2, token)
    assert (len(keys), len(rest), end) == (2, 1, "")
    assert len((await desk.list_keys("", None, ""))[0]) == 6


@pytest.mark.parametrize("page_size", [0, 1001])
async def test_list_page_size_out_of_range_is_refused(desk: AdminDesk, page_size: int) -> None:
    with pytest.raises(FieldError) as caught:
        await desk.list_tenants(page_size, "")
    assert caught.value.param == "page_size"
