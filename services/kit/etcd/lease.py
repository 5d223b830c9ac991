"""Keeps leases alive over one stream, and knows by its own clock when an owner must stop acting as one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from grpc import aio

from inferway.etcdwire.v1 import etcd_wire_pb2 as wire
from services.kit.etcd.client import EtcdClient
from services.kit.etcd.errors import EtcdError, EtcdUnavailable, from_rpc_error
from services.kit.etcd.methods import KEEP_ALIVE

KeepAliveCall = aio.StreamStreamCall[wire.LeaseKeepAliveRequest, wire.LeaseKeepAliveResponse]

_RECONNECT_PAUSE_S = 0.2


class Lease:
    """One lease. ``lost`` is set, once and for ever, when etcd says that it is gone or when no request of its last TTL was answered.

    Made by LeaseKeeper.grant. The deadline counts from the moment a request was sent, so it is never later than etcd's own.
    """

    def __init__(self, lease_id: int, ttl_s: int, granted_at: float, on_lost: Callable[[str], None] | None) -> None:
        self.id = lease_id
        self.ttl_s = ttl_s
        self.lost = asyncio.Event()
        self.next_ask_at = granted_at + ttl_s / 3
        self.asked_at: float | None = None
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._timer = self._arm(granted_at)

    def ask(self) -> None:
        """A keep-alive is being sent. The earliest one without an answer counts."""
        now = self._loop.time()
        if self.asked_at is None:
            self.asked_at = now
        self.next_ask_at = now + self.ttl_s / 3

    def answer(self, ttl_s: int) -> None:
        """A reply came; ``ttl_s`` <= 0 means that etcd knows the lease no more."""
        if ttl_s <= 0:
            self.lose("etcd does not know the lease any more")
        elif self.asked_at is not None:
            self._timer.cancel()
            self._timer = self._arm(self.asked_at)
            self.asked_at = None

    def restart(self) -> None:
        """The stream is a new one: answers to earlier requests will not come, and the next request is due now."""
        self.asked_at = None
        self.next_ask_at = self._loop.time()

    def lose(self, reason: str) -> None:
        """Marks the lease as lost and tells the owner; later calls do nothing."""
        if not self.lost.is_set():
            self.stop()
            self.lost.set()
            if self._on_lost is not None:
                self._on_lost(reason)

    def stop(self) -> None:
        """Stops the deadline: the owner has given the lease up itself."""
        self._timer.cancel()

    def _arm(self, alive_at: float) -> asyncio.TimerHandle:
        return self._loop.call_at(alive_at + self.ttl_s, self.lose, "no answer from etcd for a whole TTL")


class LeaseKeeper:
    """Keeps all leases of a process alive; ``run`` must be running for as long as leases are held.

    An owner that loses its lease stops acting as one, and grants a new lease if it wants to go on.
    """

    def __init__(self, client: EtcdClient) -> None:
        self._client = client
        self._leases: dict[int, Lease] = {}
        self._granted = asyncio.Event()

    async def grant(self, ttl_s: int, on_lost: Callable[[str], None] | None = None) -> Lease:
        """Makes a lease and keeps it alive from now on. ``on_lost(reason)`` is called at most once, in the event loop. Raises EtcdError."""
        granted_at = asyncio.get_running_loop().time()
        lease = Lease(await self._client.grant(ttl_s), ttl_s, granted_at, on_lost)
        self._leases[lease.id] = lease
        self._granted.set()
        return lease

    def forget(self, lease: Lease) -> None:
        """Stops keeping the lease alive without a loss; it ends by itself a TTL later."""
        lease.stop()
        self._leases.pop(lease.id, None)

    async def revoke(self, lease: Lease) -> None:
        """Stops keeping the lease alive and ends it now, with its keys. Raises EtcdError."""
        self.forget(lease)
        await self._client.revoke(lease.id)

    async def run(self) -> None:
        """Keeps leases alive until cancelled; no state of etcd ends it."""
        connection = self._client.connection
        while True:
            if not self._leases:
                await self._granted.wait()
            used = connection.channel_in_use
            try:
                await self._run_stream()
            except* EtcdError as group:
                connection.report_failure(cast(EtcdError, group.exceptions[0]), used)
            await asyncio.sleep(_RECONNECT_PAUSE_S)

    async def _run_stream(self) -> None:
        call = await self._client.connection.open_stream(KEEP_ALIVE)
        for lease in self._leases.values():
            lease.restart()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._send(call))
                tasks.create_task(self._receive(call))
        finally:
            call.cancel()

    async def _send(self, call: KeepAliveCall) -> None:
        while True:
            self._granted.clear()
            now = asyncio.get_running_loop().time()
            for lease in [lease for lease in self._leases.values() if lease.next_ask_at <= now]:
                if lease.lost.is_set():
                    self.forget(lease)
                    continue
                if lease.asked_at is not None:
                    raise EtcdUnavailable("no answer to a keep-alive for a third of the TTL")
                lease.ask()
                await _write(call, wire.LeaseKeepAliveRequest(id=lease.id))
            await self._wait_for_next_ask()

    async def _wait_for_next_ask(self) -> None:
        asks = [lease.next_ask_at for lease in self._leases.values()]
        try:
            async with asyncio.timeout_at(min(asks, default=None)):
                await self._granted.wait()
        except TimeoutError:
            return

    async def _receive(self, call: KeepAliveCall) -> None:
        while True:
            response = await _read(call)
            lease = self._leases.get(response.id)
            if lease is None:
                continue
            lease.answer(response.ttl)
            if lease.lost.is_set():
                self.forget(lease)


async def _write(call: KeepAliveCall, request: wire.LeaseKeepAliveRequest) -> None:
    try:
        await call.write(request)
    except aio.AioRpcError as error:
        raise from_rpc_error(error) from error
    except asyncio.InvalidStateError as error:
        raise EtcdUnavailable("keep-alive stream has ended") from error


async def _read(call: KeepAliveCall) -> wire.LeaseKeepAliveResponse:
    try:
        response = await call.read()
    except aio.AioRpcError as error:
        raise from_rpc_error(error) from error
    if response is aio.EOF:
        raise EtcdUnavailable("keep-alive stream ended by the server")
    return cast(wire.LeaseKeepAliveResponse, response)
