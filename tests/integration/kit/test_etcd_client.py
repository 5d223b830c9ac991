"""The etcd client against a real server: calls, guards, fail-over, authentication."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.kit.etcd import EtcdClient, EtcdRefused, EtcdUnavailable, LeaseNotFound, txn
from tests.harness.certificates import CertificateAuthority
from tests.harness.etcd import EtcdServer
from tests.harness.ports import free_port


async def test_client_basic_calls_answer_what_was_written(client: EtcdClient) -> None:
    assert await client.get("/a/1") is None
    await client.put("/a/1", b"one")
    await client.put("/a/2", b"two")
    await client.put("/b/1", b"other")

    listing = await client.get_prefix("/a/")
    found = await client.get("/a/1")

    assert [(kv.key, kv.value) for kv in listing.kvs] == [("/a/1", b"one"), ("/a/2", b"two")]
    assert found is not None and found.create_revision == found.mod_revision == listing.revision - 2
    assert await client.delete("/a/", prefix=True) == 2
    assert (await client.get_prefix("")).kvs[0].key == "/b/1"
    assert (await client.status()).has_leader


async def test_txn_guard_fails_and_a_repeated_write_changes_nothing(client: EtcdClient) -> None:
    first = await client.txn([txn.absent("/k")], [txn.put("/k", b"1")], [txn.read("/k")])
    again = await client.txn([txn.absent("/k")], [txn.put("/k", b"2")], [txn.read("/k")])
    based_on_old = await client.txn([txn.unchanged_since("/k", first.revision - 1)], [txn.delete("/k")])
    based_on_new = await client.txn([txn.unchanged_since("/k", first.revision)], [txn.put("/k", b"3")])

    assert first.succeeded and not again.succeeded and not based_on_old.succeeded and based_on_new.succeeded
    assert again.kvs[0].value == b"1"


async def test_guarded_write_repeated_through_kill_is_carried_out_once(etcd: EtcdServer, client: EtcdClient) -> None:
    """Rule 8: UNAVAILABLE is ambiguous, and guards make the repetition harmless."""
    counted = 0
    for number in range(40):
        if number == 20:
            etcd.kill()
            restart = asyncio.ensure_future(etcd.start())
        while True:
            current = await _get_patiently(client, "/count")
            if int(current[0]) > number:
                break
            try:
                guard = txn.unchanged_since("/count", current[1])
                counted += (await client.txn([guard], [txn.put("/count", str(number + 1).encode())])).succeeded
            except EtcdUnavailable:
                await asyncio.sleep(0.05)
    await restart

    assert (await _get_patiently(client, "/count"))[0] == b"40"
    assert counted <= 40


async def test_put_with_unknown_lease_raises_lease_not_found(client: EtcdClient) -> None:
    with pytest.raises(LeaseNotFound):
        await client.put("/k", b"v", lease=12345)


async def test_refused_call_names_what_etcd_said(client: EtcdClient) -> None:
    with pytest.raises(EtcdRefused, match="future revision"):
        await client.compact(1_000_000)


async def test_client_first_endpoint_dead_uses_the_next(etcd: EtcdServer) -> None:
    client = EtcdClient([f"127.0.0.1:{free_port()}", etcd.endpoint])
    try:
        assert await client.get("/k") is None
        await client.put("/k", b"v")
        async with client.watch("/k", start_revision=1) as watch, asyncio.timeout(5):
            assert (await anext(watch))[0].kv.value == b"v"
    finally:
        await client.close()


async def test_client_comes_back_soon_after_the_server_does(etcd: EtcdServer, client: EtcdClient) -> None:
    """Rule 4: with gRPC's own back-off of up to 120 s this would not come back within the timeout."""
    await client.put("/k", b"v")
    etcd.kill()
    for _ in range(40):  # Enough failed connects to drive a default back-off far up.
        with pytest.raises(EtcdUnavailable):
            await client.get("/k")
        await asyncio.sleep(0.1)
    await etcd.start()

    async with asyncio.timeout(3):
        assert (await _get_patiently(client, "/k"))[0] == b"v"


@pytest.fixture
async def tls_etcd(tmp_path: Path) -> AsyncIterator[tuple[EtcdServer, CertificateAuthority]]:
    authority = CertificateAuthority(tmp_path / "pki")
    server = EtcdServer(tmp_path / "etcd", authority=authority)
    await server.start()
    for command in (
        "user add root --no-password",
        "user grant-role root root",
        "role add app",
        "role grant-permission app --prefix=true readwrite /app/",
        "user add svc --no-password",
        "user grant-role svc app",
        "auth enable",
    ):
        await server.ctl(*command.split())
    yield server, authority
    server.kill()


async def test_client_with_certificate_is_the_user_of_its_common_name(tls_etcd: tuple[EtcdServer, CertificateAuthority]) -> None:
    server, authority = tls_etcd
    client = EtcdClient([server.endpoint], authority.credentials(authority.issue("svc")))
    try:
        start = await client.put("/app/k", b"1")
        with pytest.raises(EtcdRefused) as caught:
            await client.put("/other/k", b"1")
        assert caught.value.unauthorised
        async with client.watch("/app/", prefix=True, start_revision=start + 1) as watch, asyncio.timeout(20):
            server.kill()
            await server.start()
            await client.put("/app/k", b"2")
            assert (await anext(watch))[0].kv.value == b"2"
    finally:
        await client.close()


async def test_client_without_certificate_names_the_cause_in_details(tls_etcd: tuple[EtcdServer, CertificateAuthority]) -> None:
    """It has the same code as an outage, so the text must tell them apart."""
    server, authority = tls_etcd
    client = EtcdClient([server.endpoint], authority.credentials())
    try:
        with pytest.raises(EtcdUnavailable) as caught:
            await client.get("/app/k")
        assert "handshake" in caught.value.details.lower() or "certificate" in caught.value.details.lower()
    finally:
        await client.close()


@pytest.fixture
async def guarded_etcd(tmp_path: Path) -> EtcdServer:
    server = EtcdServer(tmp_path / "guarded", "--auth-token-ttl", "2")
    await server.start()
    for command in (
        "user add root:secret",
        "user grant-role root root",
        "role add app",
        "role grant-permission app --prefix=true readwrite /app/",
        "user add svc:word",
        "user grant-role svc app",
        "auth enable",
    ):
        await server.ctl(*command.split())
    return server


async def test_password_client_authenticates_again_when_its_token_is_stale(guarded_etcd: EtcdServer) -> None:
    """Rule 3 and the auth rule: a restart forgets simple tokens, for calls and for the watch on its OK stream."""
    client = EtcdClient([guarded_etcd.endpoint], user="svc", password="word")
    try:
        start = await client.put("/app/k", b"1")
        async with client.watch("/app/", prefix=True, start_revision=start) as watch, asyncio.timeout(20):
            assert (await anext(watch))[0].kv.value == b"1"
            guarded_etcd.kill()
            await guarded_etcd.start()
            await client.put("/app/k", b"2")
            assert (await anext(watch))[0].kv.value == b"2"
        with pytest.raises(EtcdRefused) as caught:
            await client.put("/other/k", b"x")
        assert caught.value.unauthorised
    finally:
        await client.close()
        guarded_etcd.kill()


async def _get_patiently(client: EtcdClient, key: str) -> tuple[bytes, int]:
    while True:
        try:
            found = await client.get(key)
        except EtcdUnavailable:
            await asyncio.sleep(0.05)
            continue
        return (found.value, found.mod_revision) if found else (b"0", 0)
