"""An engine that only says what a test tells it to: identity and load, on a loopback port."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from typing import Any, TypeAlias

import grpc
from google.protobuf import json_format

from inferway.common.v1 import registry_pb2
from inferway.engine.v1 import engine_pb2, engine_pb2_grpc
from services.kit import keyspace
from tests.harness.ports import free_port

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"

MODEL = "sim-model"


class ScriptedEngine(engine_pb2_grpc.EngineServicer):
    """One replica. ``report`` changes its load; ``kill`` cuts every connection; ``start`` after it is a new incarnation.

    It reports at once, on change, and every ``period_s`` (None: only then).
    """

    def __init__(
        self, replica_id: str, *, max_num_sequences: int = 8, num_blocks: int = 1024, model: str = MODEL, period_s: float | None = 0.5
    ) -> None:
        self.replica_id = replica_id
        self.model = model
        self.model_version = "v1"
        self.incarnation = ""
        self.load = engine_pb2.WatchLoadResponse(max_num_sequences=max_num_sequences, num_blocks=num_blocks)
        self.num_watches = 0
        self._changed = asyncio.Event()
        self._server: grpc.aio.Server | None = None
        self._port = free_port()
        self.period_s = period_s

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    async def start(self) -> None:
        """Listens, on the same port each time."""
        self.incarnation = uuid.uuid4().hex
        self._server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        engine_pb2_grpc.add_EngineServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"127.0.0.1:{self._port}")
        await self._server.start()

    def listen_on(self, other: ScriptedEngine) -> None:
        """Claims the address of another process."""
        self._port = other._port
        self.incarnation = uuid.uuid4().hex

    async def kill(self) -> None:
        """Every connection ends now, without a word."""
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop(0)

    def report(self, **fields: Any) -> None:
        """Changes the load and tells the watchers."""
        for name, value in fields.items():
            setattr(self.load, name, value)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def registration(self, state: registry_pb2.ReplicaState = registry_pb2.REPLICA_STATE_READY) -> registry_pb2.Replica:
        """What the replica would write into the registry."""
        return registry_pb2.Replica(
            replica_id=self.replica_id,
            model=self.model,
            model_version=self.model_version,
            address=self.address,
            state=state,
            block_size=16,
            num_blocks=self.load.num_blocks,
            max_num_sequences=self.load.max_num_sequences,
            max_context_tokens=4096,
            incarnation=self.incarnation,
            runner="scripted",
        )

    def entry(self, state: registry_pb2.ReplicaState = registry_pb2.REPLICA_STATE_READY) -> tuple[str, bytes]:
        """Key and value of its registration."""
        value = json_format.MessageToJson(self.registration(state), indent=None).encode()
        return keyspace.replica(self.model, self.replica_id), value

    async def GetInfo(self, request: engine_pb2.GetInfoRequest, context: Context) -> engine_pb2.GetInfoResponse:
        """See engine.proto."""
        return engine_pb2.GetInfoResponse(
            replica_id=self.replica_id, model=self.model, model_version=self.model_version, incarnation=self.incarnation
        )

    async def WatchLoad(self, request: engine_pb2.WatchLoadRequest, context: Context) -> AsyncIterator[engine_pb2.WatchLoadResponse]:
        """See engine.proto."""
        self.num_watches += 1
        while True:
            changed = self._changed
            yield self.load
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.period_s):
                    await changed.wait()
