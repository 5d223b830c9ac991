"""Credentials become an identity, or a 401 that never repeats them, or a 503 when nobody can tell."""

from dataclasses import dataclass, field

import pytest

from services.gateway import ids
from services.gateway.keys import Keys, StoredKey
from services.kit.errors import InferwayError, PermissionDenied, Unauthenticated, Unavailable
from tests.harness.gateway_fakes import FakeClock

SECRET = "ifw-" + "s" * 43


@dataclass
class MemoryStore:
    """A KeyStore in memory."""

    keys: dict[str, StoredKey] = field(default_factory=dict)
    salts: dict[str, bytes] = field(default_factory=lambda: {"acme": b"salt"})
    ready: bool = True
    live: bool = True

    def find_key(self, sha256: str) -> StoredKey | None:
        return self.keys.get(sha256)

    def find_cache_salt(self, tenant_id: str) -> bytes | None:
        return self.salts.get(tenant_id)

    def add(
        self, secret: str = SECRET, *, tenant: str = "acme", expires: int = 0, admin: bool = False, models: tuple[str, ...] = ()
    ) -> None:
        sha256 = ids.secret_sha256(secret)
        self.keys[sha256] = StoredKey(sha256, "key_1", tenant, frozenset(models), expires, admin)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(unix_ms=1_000_000)


@pytest.fixture
def keys(store: MemoryStore, clock: FakeClock) -> Keys:
    return Keys(store, clock)


def refused(keys: Keys, *authorization: str) -> InferwayError:
    with pytest.raises(InferwayError) as caught:
        keys.authenticate(authorization)
    assert SECRET not in str(caught.value.__dict__)
    return caught.value


def test_authenticate_known_key_gives_its_identity(keys: Keys, store: MemoryStore) -> None:
    store.add(models=("m1",))
    for scheme in ("Bearer", "bearer", "BEARER"):
        identity = keys.authenticate([f"{scheme} {SECRET}"])
        assert (identity.tenant_id, identity.key_id, identity.cache_salt, identity.admin) == ("acme", "key_1", b"salt", False)
    assert identity.can_use("m1")
    assert not identity.can_use("m2")


def test_authenticate_key_without_list_may_use_every_model(keys: Keys, store: MemoryStore) -> None:
    store.add()
    assert keys.authenticate([f"Bearer {SECRET}"]).can_use("anything")


def test_authenticate_nothing_sent_is_a_missing_key(keys: Keys) -> None:
    error = refused(keys)
    assert (error.code, error.reason) == ("UNAUTHENTICATED", "MISSING_API_KEY")


@pytest.mark.parametrize(
    "authorization",
    [
        (f"Bearer {SECRET}", f"Bearer {SECRET}"),
        (f"Bearer {SECRET},Bearer {SECRET}",),
        (f"Bearer {SECRET} {SECRET}",),
        (f"Bearer  {SECRET}",),
        (f"Basic {SECRET}",),
        (SECRET,),
        ("Bearer",),
        ("Bearer ",),
        (f"Bearer {SECRET[:-1]}",),
        (f"Bearer {SECRET}x",),
        ("",),
    ],
)
def test_authenticate_doubled_or_malformed_credentials_are_invalid(keys: Keys, store: MemoryStore, authorization: tuple[str, ...]) -> None:
    store.add()
    assert refused(keys, *authorization).reason == "INVALID_API_KEY"


def test_authenticate_expiry_is_the_first_moment_that_is_refused(keys: Keys, store: MemoryStore, clock: FakeClock) -> None:
    store.add(expires=1_000_001)
    assert keys.authenticate([f"Bearer {SECRET}"])
    clock.advance(0.001)
    assert refused(keys, f"Bearer {SECRET}").reason == "INVALID_API_KEY"


def test_authenticate_revoked_key_stops_at_once(keys: Keys, store: MemoryStore) -> None:
    store.add()
    assert keys.authenticate([f"Bearer {SECRET}"])
    store.keys.clear()
    assert isinstance(refused(keys, f"Bearer {SECRET}"), Unauthenticated)


def test_authenticate_keys_never_loaded_is_unavailable(keys: Keys, store: MemoryStore) -> None:
    store.add()
    store.ready = False
    error = refused(keys, f"Bearer {SECRET}")
    assert (error.code, error.reason) == ("UNAVAILABLE", "KEY_STORE_UNAVAILABLE")
    assert error.retry_after_s


def test_authenticate_while_the_store_is_away_known_keys_work_and_unknown_ones_are_not_called_bad(keys: Keys, store: MemoryStore) -> None:
    store.add()
    store.live = False
    assert keys.authenticate([f"Bearer {SECRET}"])
    assert refused(keys, "Bearer ifw-" + "n" * 43).reason == "KEY_STORE_UNAVAILABLE"
    store.add("ifw-" + "n" * 43)
    assert keys.authenticate(["Bearer ifw-" + "n" * 43])


def test_authenticate_key_that_came_before_its_tenant_is_unavailable(keys: Keys, store: MemoryStore) -> None:
    store.add(tenant="new")
    assert isinstance(refused(keys, f"Bearer {SECRET}"), Unavailable)


def test_authenticate_admin_ordinary_key_is_denied(keys: Keys, store: MemoryStore) -> None:
    store.add()
    with pytest.raises(PermissionDenied):
        keys.authenticate_admin([f"Bearer {SECRET}"])
    store.add(admin=True)
    assert keys.authenticate_admin([f"Bearer {SECRET}"]).admin


def test_authenticate_tenant_operator_without_tenant_is_denied(keys: Keys, store: MemoryStore) -> None:
    store.add(tenant="", admin=True)
    assert keys.authenticate_admin([f"Bearer {SECRET}"])
    with pytest.raises(PermissionDenied):
        keys.authenticate_tenant([f"Bearer {SECRET}"])


def test_authenticate_key_found_under_another_hash_is_invalid(keys: Keys, store: MemoryStore) -> None:
    store.keys[ids.secret_sha256(SECRET)] = StoredKey("0" * 64, "key_1", "acme", frozenset(), 0, False)
    assert refused(keys, f"Bearer {SECRET}").reason == "INVALID_API_KEY"
