"""A gateway in this process on a real etcd, with a tiny model, a tenant and keys; what it must not have is a broker."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc
from google.api.httpbody_pb2 import HttpBody
from google.protobuf import json_format
from google.protobuf.message import Message

from inferway.common.v1 import registry_pb2
from inferway.edge.v1 import admin_pb2_grpc, inference_pb2_grpc, openai_pb2, openai_pb2_grpc
from inferway.metering.v1 import records_pb2
from services.gateway import ids
from services.gateway.config import GatewayConfig
from services.gateway.server import Gateway, server_settings
from services.kit import keyspace
from services.kit.channel import connect
from services.kit.etcd import EtcdClient
from services.kit.server import ServiceState, serve
from tests.harness.tiny_model import NAME, write_tiny_model

WAIT_S = 15.0
SECRET = "ifw-" + "k" * 43
OTHER_SECRET = "ifw-" + "o" * 43
LIMITED_SECRET = "ifw-" + "l" * 43
ADMIN_SECRET = "ifw-" + "a" * 43


def to_json(message: Message) -> bytes:
    """As it lies in the registry."""
    return json_format.MessageToJson(message, indent=None).encode()


async def fill_registry(etcd: EtcdClient, *, model_version: str = "") -> None:
    """Tenants acme and other, a key each, a key that may use no served model, an operator's key, and the deployment of the tiny model."""
    for tenant in ("acme", "other"):
        await etcd.put(keyspace.tenant(tenant), to_json(registry_pb2.Tenant(tenant_id=tenant, cache_salt=tenant.encode())))
    keys = (
        (SECRET, registry_pb2.ApiKey(key_id="key_acme", tenant_id="acme")),
        (OTHER_SECRET, registry_pb2.ApiKey(key_id="key_other", tenant_id="other")),
        (LIMITED_SECRET, registry_pb2.ApiKey(key_id="key_limited", tenant_id="acme", models=["something-else"])),
        (ADMIN_SECRET, registry_pb2.ApiKey(key_id="key_admin", admin=True)),
    )
    for secret, key in keys:
        await etcd.put(keyspace.api_key(ids.secret_sha256(secret)), to_json(key))
    deployment = registry_pb2.Deployment(model=NAME, model_version=model_version, num_replicas=1, generation=1)
    await etcd.put(keyspace.deployment(NAME), to_json(deployment))


class RunningGateway:
    """`async with` starts it and stops it; its faces are `openai`, `inference` and `admin`."""

    def __init__(self, home: Path, etcd_endpoint: str, router_address: str, **settings: Any) -> None:
        if not (home / "models").exists():
            write_tiny_model(home)
        self.config = GatewayConfig(
            **{
                "home": str(home),
                "gateway_id": "gateway-test",
                "etcd_endpoints": (etcd_endpoint,),
                "router_address": router_address,
                "kafka_bootstrap": ("127.0.0.1:9",),
                "log_level": "WARNING",
                "drain_timeout_s": 5.0,
                **settings,
            }
        )
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def __aenter__(self) -> RunningGateway:
        self.service = Gateway(self.config)
        self._task = asyncio.create_task(self._serve())
        async with asyncio.timeout(WAIT_S):
            await asyncio.wait({self._task, self._ready}, return_when=asyncio.FIRST_COMPLETED)
        if self._task.done():
            await self._task
        self.address = f"127.0.0.1:{self._ready.result()}"
        self.channel = connect(self.address)
        self.openai: Any = openai_pb2_grpc.OpenAIStub(self.channel)
        self.inference: Any = inference_pb2_grpc.InferenceStub(self.channel)
        self.admin: Any = admin_pb2_grpc.AdminStub(self.channel)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        await self.channel.close()
        if self._task is not None:
            await self._task

    def stop(self) -> None:
        """As SIGTERM does."""
        self._stop.set()

    def chat(self, body: dict[str, Any] | bytes, *, secret: str | None = SECRET, metadata: tuple[tuple[str, str], ...] = ()) -> Any:
        """The call of POST /v1/chat/completions."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = openai_pb2.CreateChatCompletionRequest(body=HttpBody(content_type="application/json", data=data))
        return self.openai.CreateChatCompletion(request, metadata=(*credentials(secret), *metadata), timeout=WAIT_S)

    async def records(self) -> list[records_pb2.RequestRecord]:
        """What lies in the outbox, in order."""
        rows = await self.service.outboxes.own.read(0, 1000)
        return [records_pb2.UsageRecord.FromString(row.value).request for row in rows]

    async def _serve(self) -> None:
        gateway = self.service

        async def run(state: ServiceState) -> None:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(gateway.run(_Announcing(state, self._ready)))

        try:
            settings = server_settings(self.config)
            await serve(
                settings,
                name="gateway",
                registry=gateway.registry,
                register=gateway.register,
                run=run,
                drain=gateway.drain,
                stop=self._stop,
            )
        finally:
            await gateway.close()


class _Announcing(ServiceState):
    """A state that also tells the test when the service is ready."""

    def __init__(self, state: ServiceState, ready: asyncio.Future[int]) -> None:
        self._state = state
        self._ready = ready

    async def set_ready(self, ready: bool) -> None:
        await self._state.set_ready(ready)
        if ready and not self._ready.done():
            self._ready.set_result(self._state.port)


def credentials(secret: str | None) -> tuple[tuple[str, str], ...]:
    """The Authorization header of a key; none for None."""
    return () if secret is None else (("authorization", f"Bearer {secret}"),)


def request(**fields: Any) -> dict[str, Any]:
    """The body of a small chat request."""
    return {"model": NAME, "messages": [{"role": "user", "content": "hello"}], **fields}


async def collect(call: Any) -> bytes:
    """All bytes of a call's answer."""
    return b"".join([body.data async for body in call])


def events(data: bytes) -> list[Any]:
    """The events of a stream: parsed JSON, and "[DONE]" for the end mark."""
    found = [line.removeprefix("data: ") for line in data.decode().split("\n") if line]
    assert all(line.startswith("data: ") for line in data.decode().split("\n") if line)
    return [text if text == "[DONE]" else json.loads(text) for text in found]


async def refusal(call: Any) -> tuple[grpc.StatusCode, dict[str, Any], dict[str, str]]:
    """Code, OpenAI error object and trailers of a call that has to be refused before anything is sent."""
    try:
        data = await collect(call)
    except grpc.aio.AioRpcError as error:
        trailers = {key: value for key, value in error.trailing_metadata() or () if isinstance(value, str)}
        return error.code(), json.loads(trailers["x-openai-error"])["error"], trailers
    raise AssertionError(f"the call was not refused: {data[:200]!r}")
