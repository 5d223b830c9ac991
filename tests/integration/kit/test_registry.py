"""The registry view against a real server: a true copy, a good last view during an outage, no lost change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from google.protobuf import json_format
from prometheus_client import CollectorRegistry

from inferway.common.v1 import registry_pb2
from services.kit.etcd import EtcdClient
from services.kit.registry import Change, PrefixView, RegistryMetrics
from tests.harness.etcd import EtcdServer
from tests.harness.eventually import eventually
from tests.harness.tcp_proxy import TcpProxy

Tenant = registry_pb2.Tenant
View = PrefixView[registry_pb2.Tenant]
PREFIX = "/inferway/v1/tenants/"


def _json(name: str) -> bytes:
    return json_format.MessageToJson(Tenant(display_name=name)).encode()


@pytest.fixture
async def start_view(connect: Callable[[], EtcdClient]) -> AsyncIterator[Callable[..., View]]:
    running: list[asyncio.Future[None]] = []

    def start(**options: object) -> View:
        view: View = PrefixView(connect(), PREFIX, Tenant, **options)  # type: ignore[arg-type]
        running.append(asyncio.ensure_future(view.run()))
        return view

    yield start
    for following in running:
        following.cancel()
        await asyncio.wait({following})


async def test_view_follows_writes_and_deletes_and_tells_subscribers(client: EtcdClient, start_view: Callable[..., View]) -> None:
    await client.put(PREFIX + "a", _json("A"))
    view = start_view()
    changes: list[Change[registry_pb2.Tenant]] = []
    async with asyncio.timeout(10):
        first = await view.wait_ready()
        view.subscribe(changes.append)
        revision = await client.put(PREFIX + "b", _json("B"))
        await view.wait_until(lambda tenants: PREFIX + "b" in tenants)
        assert view.revision_of(PREFIX + "b") == revision
        await client.delete(PREFIX + "a")
        await view.wait_until(lambda tenants: PREFIX + "a" not in tenants)

    assert list(first) == [PREFIX + "a"] and first[PREFIX + "a"].display_name == "A"
    assert [(c.key[-1], c.before is None, c.after is None) for c in changes] == [("b", True, False), ("a", False, True)]
    assert view.healthy


async def test_view_skips_and_counts_values_that_do_not_parse(client: EtcdClient, start_view: Callable[..., View]) -> None:
    registry = CollectorRegistry()
    await client.put(PREFIX + "bad", b"{not json")
    await client.put(PREFIX + "good", b'{"displayName": "G", "fieldOfTheFuture": 1}')
    view = start_view(metrics=RegistryMetrics(registry))
    async with asyncio.timeout(10):
        tenants = await view.wait_ready()
        assert list(tenants) == [PREFIX + "good"]
        await client.put(PREFIX + "good", b'{"displayName": 7}')
        await client.put(PREFIX + "last", _json("L"))
        tenants = await view.wait_until(lambda tenants: PREFIX + "last" in tenants)

    assert tenants[PREFIX + "good"].display_name == "G"
    assert registry.get_sample_value("inferway_registry_bad_values_total", {"prefix": PREFIX}) == 2


async def test_view_serves_the_last_good_view_while_etcd_is_away(
    etcd: EtcdServer, client: EtcdClient, start_view: Callable[..., View]
) -> None:
    await client.put(PREFIX + "a", _json("A"))
    view = start_view()
    async with asyncio.timeout(30):
        await view.wait_ready()
        etcd.kill()
        await eventually(lambda: not view.healthy)
        assert view.stale_since is not None and list(view.snapshot()) == [PREFIX + "a"]
        await etcd.start()
        await client.put(PREFIX + "b", _json("B"))
        await view.wait_until(lambda tenants: PREFIX + "b" in tenants)
        assert view.healthy


async def test_view_started_before_etcd_becomes_ready_when_it_comes(etcd: EtcdServer, start_view: Callable[..., View]) -> None:
    etcd.kill()
    view = start_view()
    assert not view.ready and not view.healthy and view.snapshot() == {}
    await etcd.start()
    async with asyncio.timeout(10):
        await view.wait_ready()


async def test_view_behind_a_compaction_sees_what_came_and_what_went(etcd: EtcdServer, client: EtcdClient) -> None:
    """RG-01: deletes in the lost part of history are made up for by comparing a full read with what is known."""
    proxy = TcpProxy(etcd.endpoint)
    await proxy.mend()
    cut_off = EtcdClient([proxy.endpoint])
    view: View = PrefixView(cut_off, PREFIX, Tenant)
    following = asyncio.ensure_future(view.run())
    changes: list[Change[registry_pb2.Tenant]] = []
    try:
        async with asyncio.timeout(50):
            await client.put(PREFIX + "0", _json("0"))
            await view.wait_until(lambda tenants: PREFIX + "0" in tenants)
            view.subscribe(changes.append)
            for number in range(10):
                await proxy.cut()
                await client.put(f"{PREFIX}{number + 1}", _json("new"))
                await client.delete(f"{PREFIX}{number}")
                await asyncio.gather(*(client.put("/other", b"x") for _ in range(1000)))
                await client.compact((await client.status()).revision)
                await proxy.mend()
                expected = [f"{PREFIX}{number + 1}"]
                await view.wait_until(lambda tenants, expected=expected: list(tenants) == expected)  # type: ignore[misc]
    finally:
        following.cancel()
        await asyncio.wait({following})
        await cut_off.close()
        await proxy.cut()
    assert len(changes) == 20


async def test_view_full_read_corrects_what_a_watch_missed(client: EtcdClient, start_view: Callable[..., View]) -> None:
    registry = CollectorRegistry()
    view = start_view(reread_s=0.2, metrics=RegistryMetrics(registry))
    async with asyncio.timeout(10):
        await view.wait_ready()
        await client.put(PREFIX + "a", _json("A"))
        await view.wait_until(lambda tenants: PREFIX + "a" in tenants)
        await eventually(lambda: (registry.get_sample_value("inferway_registry_full_reads_total", {"prefix": PREFIX}) or 0) >= 3)
    assert list(view.snapshot()) == [PREFIX + "a"]
