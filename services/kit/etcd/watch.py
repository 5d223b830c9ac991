"""A watch that outlives lost connections, restarts and stale tokens, and neither loses nor repeats an event."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import cast

from grpc import aio

from inferway.etcdwire.v1 import etcd_wire_pb2 as wire
from services.kit.etcd.connection import Connection
from services.kit.etcd.errors import Compacted, EtcdError, from_cancel_reason, from_rpc_error
from services.kit.etcd.methods import WATCH
from services.kit.etcd.values import Event

_MIN_PAUSE_S = 0.1
_MAX_PAUSE_S = 1.0


class Watch:
    """An endless async iterator over batches of events of one key or prefix, in revision order.

    Lost streams are opened again by the watch itself, from the revision after the last event that was handed on. It raises Compacted
    when that revision is no longer to be had (or when the store is younger than it: restored from a backup); the caller then lists
    anew. Use it as an async context manager, so that the stream ends with the block.
    """

    def __init__(self, connection: Connection, key: bytes, range_end: bytes, start_revision: int) -> None:
        self._connection = connection
        self._key = key
        self._range_end = range_end
        self._next_revision = start_revision
        self._call: aio.StreamStreamCall[wire.WatchRequest, wire.WatchResponse] | None = None
        self._channel_in_use = 0
        self._pause_s = _MIN_PAUSE_S
        self._live = False
        self.last_error: EtcdError | None = None

    @property
    def live(self) -> bool:
        """True while the server has confirmed the watch and the stream stands."""
        return self._live

    async def __aenter__(self) -> Watch:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._drop()

    def __aiter__(self) -> AsyncIterator[tuple[Event, ...]]:
        return self

    async def __anext__(self) -> tuple[Event, ...]:
        while True:
            if events := await self.poll():
                return events

    async def poll(self) -> tuple[Event, ...]:
        """Waits for the next sign from the server: events, or empty when only the state of the watch (``live``) may have changed."""
        try:
            if self._call is None:
                await self._open()
            return self._take(await self._read())
        except asyncio.CancelledError:
            self._drop()  # A cancelled read has cancelled the stream: what it had received will be delivered again.
            raise
        except EtcdError as error:
            self._drop()
            if isinstance(error, Compacted):
                raise
            self._connection.report_failure(error, self._channel_in_use)
            if self.last_error is None:  # First sign of trouble: let the caller see it before the pause.
                self.last_error = error
                return ()
            self.last_error = error
            await asyncio.sleep(self._pause_s)
            self._pause_s = min(self._pause_s * 2, _MAX_PAUSE_S)
            return ()

    async def _open(self) -> None:
        self._channel_in_use = self._connection.channel_in_use
        self._call = await self._connection.open_stream(WATCH)
        create = wire.WatchCreateRequest(key=self._key, range_end=self._range_end, start_revision=self._next_revision, progress_notify=True)
        try:
            # write() and read() instead of a request generator: a cancelled generator would be reported as a destroyed pending task.
            await self._call.write(wire.WatchRequest(create_request=create))
        except aio.AioRpcError as error:
            raise from_rpc_error(error) from error
        except asyncio.InvalidStateError as error:
            raise from_cancel_reason("stream ended before the watch was asked for", 0) from error

    async def _read(self) -> wire.WatchResponse:
        assert self._call is not None
        try:
            response = await self._call.read()
        except aio.AioRpcError as error:
            raise from_rpc_error(error) from error
        if response is aio.EOF:
            raise from_cancel_reason("stream ended by the server", 0)
        return cast(wire.WatchResponse, response)

    def _take(self, response: wire.WatchResponse) -> tuple[Event, ...]:
        if response.canceled or response.compact_revision:
            raise from_cancel_reason(response.cancel_reason, response.compact_revision)
        self._live = True
        self.last_error = None
        self._pause_s = _MIN_PAUSE_S
        if response.created:
            # The header tells where the store is, not what was delivered: events up to it may still be to come.
            self._check_history(response.header.revision)
        elif response.events:
            self._next_revision = response.events[-1].kv.mod_revision + 1
        else:
            self._next_revision = max(self._next_revision, response.header.revision + 1)
        return tuple(Event.from_proto(event) for event in response.events)

    def _check_history(self, store_revision: int) -> None:
        if not self._next_revision:
            self._next_revision = store_revision + 1
        elif store_revision < self._next_revision - 1:
            raise Compacted(0, f"the store is at revision {store_revision}, behind revision {self._next_revision - 1} seen before")

    def _drop(self) -> None:
        self._live = False
        if self._call is not None:
            self._call.cancel()
            self._call = None
