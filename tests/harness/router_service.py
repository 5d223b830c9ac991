"""A router in this process, and a gateway's side of its Dispatch stream."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

import grpc

from inferway.router.v1 import router_pb2, router_pb2_grpc
from services.kit.channel import connect
from services.kit.clock import SystemClock
from services.kit.metrics import new_registry
from services.kit.server import ServerSettings, ServiceState, serve
from services.router.config import RouterConfig
from services.router.replica_view import ReplicaView
from services.router.server import Router
from tests.harness.scripted_engine import MODEL

WAIT_S = 10.0


class RunningRouter:
    """Starts a router on a port of the system's choice; ``stop`` drains it."""

    def __init__(self, config: RouterConfig, port: int = 0) -> None:
        self.registry = new_registry()
        self._router = Router(config, self.registry, SystemClock())
        self._changed = asyncio.Event()
        self._router.view.subscribe(lambda _: self._changed.set())
        self._settings = ServerSettings(port=port, drain_timeout_s=config.drain_timeout_s, log_level="WARNING")
        self._stop = asyncio.Event()
        self._listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> str:
        """Returns the address once it listens."""
        self._task = asyncio.create_task(
            serve(
                self._settings,
                name="router",
                registry=self.registry,
                register=self._router.register,
                run=self._run,
                drain=self._router.drain,
                stop=self._stop,
            )
        )
        async with asyncio.timeout(WAIT_S):
            await asyncio.wait({self._task, self._listening}, return_when=asyncio.FIRST_COMPLETED)
        return f"127.0.0.1:{self._listening.result()}"

    async def stop(self) -> None:
        """As SIGTERM does."""
        self._stop.set()
        if self._task is not None:
            await self._task

    async def until(self, predicate: Callable[[ReplicaView], bool]) -> None:
        """Waits until the router's view is as wanted."""
        async with asyncio.timeout(WAIT_S):
            while not predicate(self._router.view):
                self._changed.clear()
                await self._changed.wait()

    async def _run(self, state: ServiceState) -> None:
        self._listening.set_result(state.port)
        await self._router.run(state)


class DispatchClient:
    """One gateway. Answers are read with ``answer``, in the order in which they come."""

    def __init__(self, address: str, gateway_id: str = "gateway-1") -> None:
        self._gateway_id = gateway_id
        self.channel = connect(address)
        self.stub: Any = router_pb2_grpc.RouterStub(self.channel)
        self._call: Any = None

    async def open(self, held: tuple[router_pb2.HeldGrant, ...] = ()) -> None:
        """Opens the stream."""
        self._call = self.stub.Dispatch()
        await self.hello(held)

    async def hello(self, held: tuple[router_pb2.HeldGrant, ...] = ()) -> None:
        """Says hello."""
        hello = router_pb2.DispatchHello(gateway_id=self._gateway_id, held_grants=held)
        await self._call.write(router_pb2.DispatchRequest(hello=hello))

    async def want(self, **fields: Any) -> str:
        """Asks for a replica; returns the want id."""
        want_id = fields.pop("want_id", str(uuid.uuid4()))
        want = router_pb2.Want(**{"want_id": want_id, "model": MODEL, "prompt_tokens": 16, "max_output_tokens": 16, **fields})
        await self._call.write(router_pb2.DispatchRequest(want=want))
        return str(want_id)

    async def done(self, want_id: str, outcome: router_pb2.DoneOutcome = router_pb2.DONE_OUTCOME_FINISHED) -> None:
        """Gives a grant back."""
        await self._call.write(router_pb2.DispatchRequest(done=router_pb2.Done(want_id=want_id, outcome=outcome)))

    async def answer(self) -> router_pb2.Grant | router_pb2.Reject:
        """The next answer."""
        async with asyncio.timeout(WAIT_S):
            response = await self._call.read()
        assert response is not grpc.aio.EOF, "the router ended the stream"
        return response.grant if response.WhichOneof("kind") == "grant" else response.reject

    async def grant(self) -> router_pb2.Grant:
        """The next answer, which has to be a grant."""
        answer = await self.answer()
        assert isinstance(answer, router_pb2.Grant), answer
        return answer

    async def reject(self) -> router_pb2.Reject:
        """The next answer, which has to be a reject."""
        answer = await self.answer()
        assert isinstance(answer, router_pb2.Reject), answer
        return answer

    async def end(self) -> grpc.aio.AioRpcError:
        """The error with which the router ends the stream."""
        try:
            async with asyncio.timeout(WAIT_S):
                while await self._call.read() is not grpc.aio.EOF:
                    pass
                await self._call
        except grpc.aio.AioRpcError as error:
            return error
        raise AssertionError("the stream ended without an error")

    async def replicas(self, model: str = "") -> list[router_pb2.ReplicaView]:
        """What ListReplicas says."""
        return list((await self.stub.ListReplicas(router_pb2.ListReplicasRequest(model=model), timeout=WAIT_S)).replicas)

    async def explain(self, **fields: Any) -> router_pb2.ExplainResponse:
        """What Explain says about a want."""
        want = router_pb2.Want(**{"model": MODEL, "prompt_tokens": 16, "max_output_tokens": 16, **fields})
        return await self.stub.Explain(router_pb2.ExplainRequest(want=want), timeout=WAIT_S)

    def cut(self) -> None:
        """The stream breaks."""
        self._call.cancel()

    async def half_close(self) -> None:
        """Says that nothing more will come."""
        await self._call.done_writing()

    async def close(self) -> None:
        """Ends everything."""
        if self._call is not None:
            self._call.cancel()
        await self.channel.close()
