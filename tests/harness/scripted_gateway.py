"""A gateway that does what the model name says; it stands for the real one only in tests of the edge."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.api.httpbody_pb2 import HttpBody
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from inferway.edge.v1 import inference_pb2 as native
from inferway.edge.v1 import inference_pb2_grpc, openai_pb2_grpc
from tests.harness.ports import free_port

QUOTED = 'a "quoted" reason: 100% \\ é'
JSON, SSE = "application/json", "text/event-stream"
Code = grpc.StatusCode
GRPC_OF = {
    400: Code.INVALID_ARGUMENT,
    401: Code.UNAUTHENTICATED,
    403: Code.PERMISSION_DENIED,
    404: Code.NOT_FOUND,
    408: Code.DEADLINE_EXCEEDED,
    413: Code.RESOURCE_EXHAUSTED,
    415: Code.INVALID_ARGUMENT,
    422: Code.INVALID_ARGUMENT,
    429: Code.RESOURCE_EXHAUSTED,
    500: Code.INTERNAL,
    501: Code.UNIMPLEMENTED,
    503: Code.UNAVAILABLE,
    504: Code.DEADLINE_EXCEEDED,
}


@dataclass
class ScriptedGateway:
    """Models: `echo` (answers the metadata it saw), `whole`, `stream`, `gated` (one event for each `gate.release()`), `breaks` (error event
    in mid-stream), `flood` (64 MiB of events as fast as they are taken), `hang`, `crash`, `big:BYTES`, `refuse:HTTP` (as the gateway
    refuses), `status:GRPC` (as the gRPC runtime does) and `late:GRPC` (the same after the initial metadata)."""

    gate: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    entered: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    paths: list[str] = field(default_factory=list)
    """Every method whose headers arrived."""
    num_bodies: int = 0
    """Chat requests that arrived whole."""
    flooded_bytes: int = 0
    """What `flood` could write so far."""
    port: int = field(default_factory=free_port)
    _server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Listen, on the same port again after `kill`."""
        options = [("grpc.max_receive_message_length", 8 << 20), ("grpc.so_reuseport", 0)]
        server = grpc.aio.server(interceptors=[_Recorder(self.paths)], options=options)
        openai_pb2_grpc.add_OpenAIServicer_to_server(_OpenAI(self), server)
        inference_pb2_grpc.add_InferenceServicer_to_server(_Inference(self), server)
        checks = health.aio.HealthServicer()
        await checks.set("", health_pb2.HealthCheckResponse.SERVING)
        health_pb2_grpc.add_HealthServicer_to_server(checks, server)
        server.add_insecure_port(f"127.0.0.1:{self.port}")
        await server.start()
        self._server = server

    async def kill(self) -> None:
        """Close every connection at once."""
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    def reset(self) -> None:
        """Forget what earlier tests did."""
        self.gate = asyncio.Semaphore(0)
        self.entered.clear()
        self.cancelled.clear()
        self.paths.clear()
        self.num_bodies = 0
        self.flooded_bytes = 0

    async def wait_forever(self) -> None:
        """Until the caller is gone, which sets `cancelled`."""
        self.entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()


class _Recorder(grpc.aio.ServerInterceptor):
    def __init__(self, paths: list[str]) -> None:
        self._paths = paths

    async def intercept_service(self, continuation: Any, handler_call_details: grpc.HandlerCallDetails) -> Any:
        if "Health" not in handler_call_details.method:
            self._paths.append(handler_call_details.method)
        return await continuation(handler_call_details)


class _OpenAI(openai_pb2_grpc.OpenAIServicer):
    def __init__(self, gateway: ScriptedGateway) -> None:
        self._gateway = gateway

    async def CreateChatCompletion(self, request: Any, context: Any) -> AsyncIterator[HttpBody]:
        self._gateway.num_bodies += 1
        try:
            body = json.loads(request.body.data)
            model = body["model"]
        except (ValueError, KeyError, TypeError, RecursionError):
            await refuse(context, 400, "The body is not a chat request.")
            raise AssertionError("abort returned") from None
        await _maybe_fail(model, context)
        if model == "hang":
            await self._gateway.wait_forever()
        script = self._streamed(model) if body.get("stream") else self._whole(model, context)
        async for answer in script:
            yield answer
        if model == "breaks":
            await context.abort(Code.INTERNAL, "seen by trailers only")

    async def _whole(self, model: str, context: Any) -> AsyncIterator[HttpBody]:
        if model == "echo":
            seen = [[key, value] for key, value in context.invocation_metadata() if isinstance(value, str)]
            yield HttpBody(content_type=JSON, data=json.dumps({"metadata": seen}).encode())
        elif model.startswith("big:"):
            yield HttpBody(content_type=JSON, data=json.dumps({"text": "x" * int(model[4:])}).encode())
        else:
            yield HttpBody(content_type=JSON, data=json.dumps(completion()).encode())

    async def _streamed(self, model: str) -> AsyncIterator[HttpBody]:
        gateway = self._gateway
        if model == "flood":
            async for piece in _flood(gateway):
                yield piece
            return
        if model == "gated":
            await gateway.gate.acquire()
        yield HttpBody(content_type=SSE, data=event(chunk("")))
        for number in range(4):
            if model == "gated":
                gateway.entered.set()
                try:
                    await gateway.gate.acquire()
                except asyncio.CancelledError:
                    gateway.cancelled.set()
                    raise
            if model == "breaks" and number == 2:
                error = {"message": "the replica was lost", "type": "server_error", "param": None, "code": "replica_lost"}
                yield HttpBody(data=event({"error": error}))
                return
            yield HttpBody(data=event(chunk(f"t{number} ")))
        yield HttpBody(data=event(chunk(None, "stop")) + b"data: [DONE]\n\n")

    async def ListModels(self, request: Any, context: Any) -> HttpBody:
        return HttpBody(content_type=JSON, data=json.dumps({"object": "list", "data": [card("small")]}).encode())

    async def GetModel(self, request: Any, context: Any) -> HttpBody:
        await _maybe_fail(request.model, context)
        return HttpBody(content_type=JSON, data=json.dumps(card(request.model)).encode())


class _Inference(inference_pb2_grpc.InferenceServicer):
    def __init__(self, gateway: ScriptedGateway) -> None:
        self._gateway = gateway

    async def Generate(self, request_iterator: Any, context: Any) -> AsyncIterator[native.GenerateResponse]:
        headers_sent = False
        async for request in request_iterator:
            if request.WhichOneof("kind") == "cancel":
                yield native.GenerateResponse(finished=native.GenerateFinished(finish_reason="cancelled"))
                return
            model = request.start.model
            if model == "slow-headers":
                await self._gateway.gate.acquire()
            if not headers_sent:
                await context.send_initial_metadata((("x-scripted", "1"),))
                headers_sent = True
            if model == "slow-accept":
                await self._gateway.gate.acquire()
            await _maybe_fail(model, context)
            if model == "hang":
                await self._gateway.wait_forever()
            yield native.GenerateResponse(accepted=native.GenerateAccepted(completion_id="c1", model=model))


async def _flood(gateway: ScriptedGateway) -> AsyncIterator[HttpBody]:
    piece = HttpBody(content_type=SSE, data=b": " + b"x" * (16384 - 4) + b"\n\n")
    try:
        while gateway.flooded_bytes < 64 << 20:
            yield piece
            gateway.flooded_bytes += len(piece.data)
    finally:
        gateway.cancelled.set()


async def _maybe_fail(model: str, context: Any) -> None:
    kind, _, argument = model.partition(":")
    if kind == "refuse":
        await refuse(context, int(argument), "Refused by the script.")
    elif kind == "status":
        await context.abort(Code[argument], QUOTED)
    elif kind == "rich":
        await context.abort(Code[argument], QUOTED, (("grpc-status-details-bin", details(Code[argument], QUOTED)),))
    elif kind == "late":
        await context.send_initial_metadata((("x-scripted", "1"),))
        await context.abort(Code[argument], "after the metadata")
    elif kind == "crash":
        raise RuntimeError("a fault of the script")


async def refuse(context: Any, http: int, message: str) -> None:
    """The written convention between gateway and edge: status and JSON body in trailing metadata."""
    kind = "server_error" if http >= 500 else "invalid_request_error"
    error = {"message": message, "type": kind, "param": "model", "code": "scripted"}
    trailers: list[tuple[str, str | bytes]] = [("x-http-status", str(http)), ("x-openai-error", json.dumps({"error": error}))]
    trailers.append(("grpc-status-details-bin", details(GRPC_OF[http], message)))
    if http == 429:
        trailers.append(("retry-after", "7"))
    await context.abort(GRPC_OF[http], message, tuple(trailers))


def details(code: grpc.StatusCode, message: str) -> bytes:
    """A google.rpc.Status with one detail that Envoy knows and one that it cannot know."""
    rich = status_pb2.Status(code=code.value[0], message=message)
    rich.details.add().Pack(error_details_pb2.ErrorInfo(reason="SCRIPTED", domain="inferway"))
    rich.details.add(type_url="type.googleapis.com/inferway.unknown.v1.Detail", value=b"\x08\x01")
    return rich.SerializeToString()


def card(model: str) -> dict[str, Any]:
    """A model object of the OpenAI API."""
    return {"id": model, "object": "model", "created": 1, "owned_by": "inferway"}


def completion() -> dict[str, Any]:
    """A whole chat completion."""
    message = {"role": "assistant", "content": "hello", "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    usage = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
    return {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "whole", "choices": [choice], "usage": usage}


def chunk(content: str | None, finish_reason: str | None = None) -> dict[str, Any]:
    """One streamed chat completion chunk."""
    delta = {} if content is None else {"content": content}
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "stream", "choices": [choice]}


def event(document: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(document).encode() + b"\n\n"
