"""The router's connection to one replica: its load stream, which also is the judge of whether the replica lives."""

from __future__ import annotations

import asyncio
import contextlib
import logging

import grpc

from inferway.engine.v1 import engine_pb2, engine_pb2_grpc
from services.kit.channel import connect
from services.router.replica_view import ReplicaView
from services.router.snapshot import Load, ReplicaFacts

_log = logging.getLogger(__name__)
_MIN_PAUSE_S = 0.1
_MAX_PAUSE_S = 1.0
_CALL_TIMEOUT_S = 2.0


class _NotThisReplica(Exception):
    """Another process answers at the address."""


class ReplicaWatch:
    """Follows WatchLoad of one process and tells the view: connect at the first report, disconnect at the first sign of trouble.

    A process counts only if GetInfo says that it is the registered incarnation: the port may have been taken over by another one.
    A stream that is silent for ``max_silence_s`` is broken.
    """

    def __init__(self, facts: ReplicaFacts, view: ReplicaView, max_silence_s: float) -> None:
        self._facts = facts
        self._view = view
        self._max_silence_s = max_silence_s
        self._pause_s = _MIN_PAUSE_S
        self._hurry = asyncio.Event()
        self._connected = False
        self.broken = asyncio.Event()
        """Set while there is no working connection."""
        self.broken.set()

    def hurry(self) -> None:
        """Ends a pause between two tries."""
        self._hurry.set()

    async def run(self) -> None:
        """Keeps the stream open until cancelled."""
        async with connect(self._facts.address) as channel:
            stub = engine_pb2_grpc.EngineStub(channel)
            while True:
                await self._try(stub)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._pause_s):
                        await self._hurry.wait()
                self._hurry.clear()
                self._pause_s = min(self._pause_s * 2, _MAX_PAUSE_S)

    async def _try(self, stub: engine_pb2_grpc.EngineStub) -> None:
        trouble = "the stream ended"
        try:
            await self._check_identity(stub)
            await self._follow(stub)
        except grpc.aio.AioRpcError as error:
            trouble = f"{error.code().name}: {error.details()}"
        except _NotThisReplica as error:
            trouble = str(error)
        except TimeoutError:
            trouble = f"silent for {self._max_silence_s:g} s"
        finally:
            self._set_broken(trouble)

    async def _check_identity(self, stub: engine_pb2_grpc.EngineStub) -> None:
        info = await stub.GetInfo(engine_pb2.GetInfoRequest(), timeout=_CALL_TIMEOUT_S)
        if (info.replica_id, info.incarnation) != (self._facts.replica_id, self._facts.incarnation):
            raise _NotThisReplica(f"{self._facts.address} is another process: replica {info.replica_id}, incarnation {info.incarnation}")

    async def _follow(self, stub: engine_pb2_grpc.EngineStub) -> None:
        call = stub.WatchLoad(engine_pb2.WatchLoadRequest())
        try:
            while True:
                async with asyncio.timeout(self._max_silence_s):
                    report = await call.read()
                if not isinstance(report, engine_pb2.WatchLoadResponse):
                    return
                self._take(load_from_proto(report))
        finally:
            call.cancel()

    def _take(self, load: Load) -> None:
        replica_id = self._facts.replica_id
        if not self._connected:
            self._connected = True
            self.broken.clear()
            self._pause_s = _MIN_PAUSE_S
            self._view.connect(replica_id)
            _log.info("replica connected", extra={"fields": self._fields()})
        self._view.report(replica_id, load)

    def _set_broken(self, trouble: str) -> None:
        if self._connected:
            self._connected = False
            self.broken.set()
            self._view.disconnect(self._facts.replica_id)
            _log.warning("replica disconnected", extra={"fields": {**self._fields(), "trouble": trouble}})
        else:
            _log.debug("replica cannot be reached", extra={"fields": {**self._fields(), "trouble": trouble}})

    def _fields(self) -> dict[str, str]:
        return {"replica": self._facts.replica_id, "address": self._facts.address, "incarnation": self._facts.incarnation}


def load_from_proto(report: engine_pb2.WatchLoadResponse) -> Load:
    """The engine's word without wire types."""
    return Load(
        num_running=report.num_running,
        num_waiting=report.num_waiting,
        num_used_blocks=report.num_used_blocks,
        num_blocks=report.num_blocks,
        max_num_sequences=report.max_num_sequences,
        heartbeat_age_s=report.heartbeat_age_s,
        draining=report.draining,
    )
