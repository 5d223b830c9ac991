"""A router whose answers are the test's: grants in turn to the given replicas, or rejects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, TypeAlias

import grpc

from inferway.router.v1 import router_pb2, router_pb2_grpc
from tests.harness.ports import free_port

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"

WAIT_S = 10.0


class DispatchRouter(router_pb2_grpc.RouterServicer):
    """Grants the first of `replicas` (id to address) that a want does not exclude; NO_READY_REPLICA when there is none.

    `reject` answers every want with that reason; while `silent` wants wait for ever.
    """

    def __init__(self, **replicas: str) -> None:
        self.replicas = replicas
        self.reject = ""
        self.silent = False
        self.hellos: list[router_pb2.DispatchHello] = []
        self.wants: list[router_pb2.Want] = []
        self.first_tokens: list[str] = []
        self.dones: dict[str, router_pb2.DoneOutcome] = {}
        self._changed = asyncio.Event()
        self._port = free_port()
        self._server: grpc.aio.Server | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    async def start(self) -> None:
        """Listens, on the same port each time."""
        self._server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        router_pb2_grpc.add_RouterServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"127.0.0.1:{self._port}")
        await self._server.start()

    async def kill(self) -> None:
        """Every connection ends now, without a word."""
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop(0)

    async def until_wants(self, num: int) -> router_pb2.Want:
        """Waits until so many wants have come; returns the last."""
        await self._until(lambda: len(self.wants) >= num)
        return self.wants[-1]

    async def until_done(self, want_id: str) -> router_pb2.DoneOutcome:
        """Waits until the grant or the want was given back."""
        await self._until(lambda: want_id in self.dones)
        return self.dones[want_id]

    async def until_hellos(self, num: int) -> router_pb2.DispatchHello:
        """Waits until so many gateways or reconnects have come; returns the last hello."""
        await self._until(lambda: len(self.hellos) >= num)
        return self.hellos[-1]

    async def Dispatch(
        self, request_iterator: AsyncIterator[router_pb2.DispatchRequest], context: Context
    ) -> AsyncIterator[router_pb2.DispatchResponse]:
        """See router.proto."""
        async for request in request_iterator:
            match request.WhichOneof("kind"):
                case "hello":
                    self.hellos.append(request.hello)
                case "want":
                    self.wants.append(request.want)
                    if not self.silent:
                        yield self._answer(request.want)
                case "first_token":
                    self.first_tokens.append(request.first_token.want_id)
                case "done":
                    self.dones[request.done.want_id] = request.done.outcome
            self._changed.set()

    def _answer(self, want: router_pb2.Want) -> router_pb2.DispatchResponse:
        free = [replica for replica in self.replicas if replica not in want.excluded_replica_ids]
        reason = self.reject or ("" if free else "NO_READY_REPLICA")
        if reason:
            reject = router_pb2.Reject(want_id=want.want_id, reason=reason, message=f"scripted: {reason}", retry_after_ms=2000)
            return router_pb2.DispatchResponse(reject=reject)
        grant = router_pb2.Grant(want_id=want.want_id, replica_id=free[0], address=self.replicas[free[0]], model_version=want.model_version)
        return router_pb2.DispatchResponse(grant=grant)

    async def _until(self, condition: Any) -> None:
        async with asyncio.timeout(WAIT_S):
            while not condition():
                self._changed.clear()
                await self._changed.wait()
