"""Faults of comparable systems around keys, tenants and what is public: who may do what, and what a refusal gives away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import httpx2 as httpx
import pytest

from cli.clients import Admin
from inferway.edge.v1 import admin_pb2, admin_pb2_grpc, inference_pb2, inference_pb2_grpc
from services.kit.channel import connect
from services.kit.errors import InvalidArgument
from tests.harness.bill import Bill
from tests.harness.mesh import MODEL, Mesh
from tests.harness.rest import Rest, error_of, request
from tests.harness.traffic import Clients

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

REVOKED_S = 2.0


@pytest.fixture
async def edge(mesh: Mesh) -> AsyncIterator[grpc.aio.Channel]:
    async with connect(f"127.0.0.1:{mesh.ports.edge_http}") as channel:
        yield channel


@pytest.fixture
def admin(mesh: Mesh, edge: grpc.aio.Channel) -> Admin:
    return Admin(edge, mesh.operator_key)


async def new_key(admin: Admin, **fields: Any) -> admin_pb2.CreateApiKeyResponse:
    return await admin.create_key(admin_pb2.CreateApiKeyRequest(tenant_id="demo", display_name="short-lived", **fields))


async def until_works(mesh: Mesh, key: str) -> None:
    async with Rest(mesh, key) as rest, asyncio.timeout(REVOKED_S):
        while (await rest.chat(max_tokens=1)).status_code != 200:
            pass


async def test_ak_01_a_revoked_key_stops_on_every_open_connection(mesh: Mesh, admin: Admin) -> None:
    created = await new_key(admin)
    await until_works(mesh, created.secret)
    async with Rest(mesh, created.secret) as rest, Clients(mesh, created.secret) as clients:
        assert (await rest.chat()).status_code == 200 and not (await clients.ask_grpc("hi", 1)).failure
        await admin.revoke_key(created.key.key_id)
        async with asyncio.timeout(REVOKED_S):
            while (refused := await rest.chat(max_tokens=1)).status_code == 200:
                pass
            while not (failure := (await clients.ask_grpc("hi", 1)).failure):
                pass
        assert error_of(refused, 401)["code"] == "invalid_api_key"
        assert failure.startswith("UNAUTHENTICATED")
        assert (await rest.http.get("/v1/models")).status_code == 401


async def test_ak_01_a_running_stream_of_a_revoked_key_ends_as_it_began(mesh: Mesh, admin: Admin) -> None:
    """Work that was accepted is finished and billed to the key that asked for it."""
    created = await new_key(admin)
    await until_works(mesh, created.secret)
    async with Clients(mesh, created.secret) as clients:
        call = clients.generate("hi", 30)
        assert (await anext(aiter(call))).accepted.completion_id
        await admin.revoke_key(created.key.key_id)
        *_, finished, usage = [message async for message in call]
    assert (finished.finished.finish_reason, usage.usage.completion_tokens) == ("length", 30)


WRONG: dict[str, Callable[[str], str]] = {
    "unknown": lambda key: f"Bearer {key[:-4]}AAAA",
    "cut": lambda key: f"Bearer {key[:-1]}",
    "longer": lambda key: f"Bearer {key}A",
    "spaces": lambda key: f"Bearer {key[:20]} {key[20:]}",
    "twice": lambda key: f"Bearer {key} {key}",
    "list": lambda key: f"Bearer {key}, Bearer {key}",
    "no scheme": lambda key: key,
    "other scheme": lambda key: f"Basic {key}",
}


@pytest.mark.parametrize("case", WRONG)
async def test_ak_02_a_refusal_never_repeats_the_key(mesh: Mesh, case: str) -> None:
    given = WRONG[case](mesh.key)
    secret = mesh.key[12:40]
    async with Rest(mesh) as rest, Clients(mesh) as clients:
        response = await rest.chat({"authorization": given})
        assert error_of(response, 401)["code"] == "invalid_api_key"
        call = inference_pb2_grpc.InferenceStub(clients.channel).ListServedModels(
            inference_pb2.ListServedModelsRequest(), metadata=(("authorization", given),), timeout=5
        )
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    told = response.text + str(response.headers) + (caught.value.details() or "") + str(caught.value.trailing_metadata())
    assert secret not in told
    assert [log.name for log in mesh.home.logs.iterdir() if secret in log.read_text(errors="replace")] == []


@pytest.mark.parametrize("parameter", ["key", "api_key", "access_token"])
async def test_ak_02_a_key_in_the_address_is_refused_and_not_logged(mesh: Mesh, parameter: str) -> None:
    async with httpx.AsyncClient(base_url=mesh.base_url) as http:
        error_of(await http.get("/v1/models", params={parameter: mesh.key}), 401)
    assert [log.name for log in mesh.home.logs.iterdir() if mesh.key in log.read_text(errors="replace")] == []


async def test_ak_02_an_expired_key_is_refused(mesh: Mesh, admin: Admin) -> None:
    created = await new_key(admin, expires_unix_ms=int(time.time() * 1000) + 1000)
    async with Rest(mesh, created.secret) as rest, asyncio.timeout(10):
        while (refused := await rest.chat(max_tokens=1)).status_code == 200 or time.time() * 1000 < created.key.expires_unix_ms:
            pass
    assert error_of(refused, 401)["code"] == "invalid_api_key"
    assert created.secret[12:40] not in refused.text


ADMIN_CALLS = {
    "CreateTenant": admin_pb2.CreateTenantRequest(tenant_id="mine"),
    "ListTenants": admin_pb2.ListTenantsRequest(),
    "CreateApiKey": admin_pb2.CreateApiKeyRequest(tenant_id="operator", admin=True),
    "ListApiKeys": admin_pb2.ListApiKeysRequest(tenant_id="demo"),
    "RevokeApiKey": admin_pb2.RevokeApiKeyRequest(key_id="key_0"),
    "SetTenantLimits": admin_pb2.SetTenantLimitsRequest(tenant_id="demo"),
}


@pytest.mark.parametrize("method", ADMIN_CALLS)
async def test_ak_05_an_ordinary_key_has_no_operator_powers(mesh: Mesh, edge: grpc.aio.Channel, method: str) -> None:
    call = getattr(admin_pb2_grpc.AdminStub(edge), method)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(ADMIN_CALLS[method], metadata=(("authorization", f"Bearer {mesh.key}"),), timeout=5)
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert "operator" in (caught.value.details() or "") and "key_" not in str(caught.value.trailing_metadata())


@pytest.mark.parametrize("tenant_id", ["a:b", "a/b", "a|b", "A", "a\0", "\uff41", "", "..", "-a", "a" * 65, "a b"], ids=ascii)
async def test_se_02_a_tenant_name_that_could_collide_is_not_created(admin: Admin, tenant_id: str) -> None:
    with pytest.raises(InvalidArgument):
        await admin.create_tenant(tenant_id)
    with pytest.raises(InvalidArgument):
        await admin.create_key(admin_pb2.CreateApiKeyRequest(tenant_id=tenant_id))


@pytest.mark.parametrize("model", [f"{MODEL} ", MODEL.upper(), f"{MODEL}:newest", f"../{MODEL}", f"{MODEL}\0", f"demo/{MODEL}"], ids=ascii)
async def test_se_02_a_model_has_one_name(mesh: Mesh, model: str) -> None:
    async with Rest(mesh) as rest:
        assert error_of(await rest.chat(model=model), 404)["code"] == "model_not_found"


FORGED = {
    "x-forwarded-for": "10.0.0.1",
    "x-tenant": "operator",
    "x-tenant-id": "operator",
    "x-inferway-tenant": "operator",
    "x-inferway-key-id": "key_0",
    "x-jwt-sub": "operator",
    "x-role": "admin",
    "x-user": "root",
    "x-model": "other",
    "x-priority": "high",
    "x-cost": "0",
    "x-replica": "127.0.0.1:1",
    "x-envoy-original-dst-host": "127.0.0.1:1",
    "x-envoy-upstream-rq-timeout-ms": "1",
    "x-http-status": "500",
    "x-openai-error": "{}",
    "x-http-method-override": "GET",
}


async def test_se_04_no_header_changes_who_asks_for_what(mesh: Mesh) -> None:
    async with Rest(mesh) as rest, Clients(mesh) as clients:
        plain = (await rest.answer())["choices"][0]["message"]["content"]
        answers = await asyncio.gather(*(rest.chat({name: value}) for name, value in FORGED.items()))
        assert [answer.status_code for answer in answers] == [200] * len(FORGED)
        call = inference_pb2_grpc.InferenceStub(clients.channel).Generate(
            iter(
                [
                    inference_pb2.GenerateRequest(
                        start=inference_pb2.GenerateStart(model=MODEL, max_completion_tokens=1, messages=[{"role": "user"}])
                    )
                ]
            ),
            metadata=(("authorization", f"Bearer {mesh.key}"), *FORGED.items()),
            timeout=30,
        )
        native = [message.accepted.completion_id async for message in call if message.accepted.completion_id]
    documents = [answer.json() for answer in answers]
    rows = await Bill(mesh).until_rows([document["id"] for document in documents] + native)
    assert {(row.tenant_id, row.model) for row in rows} == {("demo", MODEL)}
    assert {document["choices"][0]["message"]["content"] for document in documents} == {plain}


@pytest.mark.parametrize("address", ["edge", "gateway"])
async def test_se_05_services_behind_the_edge_are_not_offered(mesh: Mesh, address: str) -> None:
    """No method of the other services is reachable through the public port, nor is the gateway willing to explain itself."""
    port = mesh.ports.edge_http if address == "edge" else mesh.ports.gateway_grpc
    async with connect(f"127.0.0.1:{port}") as channel:
        for method in (
            "/inferway.scheduler.v1.ControlPlane/Scale",
            "/inferway.metering.v1.Usage/ListRequests",
            "/inferway.router.v1.Router/ListReplicas",
            "/inferway.engine.v1.Engine/GetInfo",
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
            "/inferway.edge.v1.Inference/Missing",
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await channel.unary_unary(method)(b"", metadata=(("authorization", f"Bearer {mesh.key}"),), timeout=5)
            assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize(
    ("path", "codes"),
    [
        ("/health", {404}),
        ("/tokenize", {404}),
        ("/invocations", {404}),
        ("/debug/pprof", {404}),
        ("/v1", {404}),
        ("/v1/files", {404}),
        ("/v1/models/", {401, 405}),
        ("/v1/models;x", {404}),
        ("/v1/models%2f..%2f..%2fadmin", {404}),
        ("/v1/chat/completions/", {404}),
        ("/v1/chat//completions", {404}),
        ("/inferway.edge.v1.OpenAI/CreateChatCompletion", {404}),
        ("/inferway.edge.v1.Admin/ListTenants", {404}),
        ("/grpc.health.v1.Health/Check", {404}),
    ],
)
async def test_se_05_only_the_public_api_is_public(mesh: Mesh, path: str, codes: set[int]) -> None:
    async with httpx.AsyncClient(base_url=mesh.base_url) as http:
        answers = [await http.get(path), await http.post(path, json=request())]
    assert {answer.status_code for answer in answers} == codes
    for answer in answers:
        error_of(answer, answer.status_code)
