"""What users of every surface get from the real mesh, and that it is on the bill."""

from __future__ import annotations

import asyncio
import json

import httpx2 as httpx
import openai
import pytest

from cli.clients import Admin
from inferway.edge.v1 import admin_pb2, inference_pb2, inference_pb2_grpc
from services.kit.channel import connect
from tests.harness.bill import Bill
from tests.harness.mesh import MODEL, Mesh
from tests.harness.traffic import Clients

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

HELLO = [{"role": "user", "content": "Say hello."}]


def post(mesh: Mesh, body: object, key: str | None = None) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"authorization": f"Bearer {key or mesh.key}", "content-type": "application/json"}
    return httpx.post(f"{mesh.base_url}/v1/chat/completions", content=content, headers=headers, timeout=30)


def events(response: httpx.Response) -> list[str]:
    return [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]


async def test_three_surfaces_give_one_answer_and_one_bill(mesh: Mesh) -> None:
    async with Clients(mesh) as clients:
        told = await asyncio.gather(*(ask("What is a mesh?") for ask in clients.surfaces))
    assert [one.failure for one in told] == ["", "", ""]
    assert len({(one.text, one.prompt_tokens, one.completion_tokens) for one in told}) == 1
    await Bill(mesh).until_equal(told)


@pytest.mark.parametrize("stream", [None, False])
def test_plain_answer_is_one_json_document(mesh: Mesh, stream: bool | None) -> None:
    response = post(mesh, {"model": MODEL, "messages": HELLO, "max_tokens": 4, "stream": stream})
    assert response.headers["content-type"] == "application/json"
    answer = response.json()
    assert (answer["object"], answer["usage"]["completion_tokens"], answer["choices"][0]["finish_reason"]) == (
        "chat.completion",
        4,
        "length",
    )


def test_stream_is_an_event_stream_that_ends_with_done(mesh: Mesh) -> None:
    response = post(mesh, {"model": MODEL, "messages": HELLO, "max_tokens": 4, "stream": True})
    assert response.headers["content-type"] == "text/event-stream"
    *chunks, done = events(response)
    parsed = [json.loads(chunk) for chunk in chunks]
    assert done == "[DONE]"
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in parsed}) == 1
    assert [choice["finish_reason"] for chunk in parsed for choice in chunk["choices"] if choice["finish_reason"]] == ["length"]
    assert all(chunk["choices"] for chunk in parsed), "nobody asked for usage"


async def test_models_are_listed_for_rest_and_grpc(mesh: Mesh) -> None:
    async with Clients(mesh) as clients:
        listed = [model.id async for model in clients.openai.models.list()]
        assert listed == [MODEL]
        assert (await clients.openai.models.retrieve(MODEL)).object == "model"
        stub = inference_pb2_grpc.InferenceStub(clients.channel)
        metadata = (("authorization", f"Bearer {mesh.key}"),)
        answer = await stub.ListServedModels(inference_pb2.ListServedModelsRequest(), metadata=metadata, timeout=10)
        assert [model.model for model in answer.models] == [MODEL]


async def test_same_client_request_id_twice_at_once_is_two_requests(mesh: Mesh) -> None:
    async with Clients(mesh) as clients:
        ask = clients.openai.chat.completions.with_raw_response.create
        both = await asyncio.gather(
            *(
                ask(model=MODEL, messages=[{"role": "user", "content": text}], max_tokens=8, extra_headers={"x-request-id": "same"})
                for text in ("one", "two")
            )
        )
    first, second = (raw.parse() for raw in both)
    assert first.id != second.id
    assert first.choices[0].message.content != second.choices[0].message.content
    assert [row.request_id for row in await Bill(mesh).until_rows([first.id, second.id])] == ["same"] * 2


async def test_temperature_zero_is_greedy_and_a_seed_repeats(mesh: Mesh) -> None:
    async def ask(**sampling: float) -> str:
        async with Clients(mesh) as clients:
            answer = await clients.openai.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=12, **sampling)  # type: ignore[call-overload]
        return str(answer.choices[0].message.content)

    assert await ask(temperature=0) == await ask(temperature=0)
    assert await ask(temperature=1, seed=42) == await ask(temperature=1, seed=42)


async def test_revoked_key_stops_within_two_seconds_on_an_open_connection(mesh: Mesh) -> None:
    async with connect(f"127.0.0.1:{mesh.ports.edge_http}") as edge:
        admin = Admin(edge, mesh.operator_key)
        created = await admin.create_key(admin_pb2.CreateApiKeyRequest(tenant_id="demo", display_name="short-lived"))
        await until_revoked(mesh, admin, created)


async def until_revoked(mesh: Mesh, admin: Admin, created: admin_pb2.CreateApiKeyResponse) -> None:
    async with Clients(mesh, key=created.secret) as clients:
        assert (await clients.ask_whole("hi", 2)).failure == ""
        await admin.revoke_key(created.key.key_id)
        async with asyncio.timeout(2):
            while not (refused := await clients.ask_whole("hi", 1)).failure:
                pass
    assert "AuthenticationError" in refused.failure


def test_smoke_finds_nothing_wrong(mesh: Mesh) -> None:
    done = mesh.run("smoke", "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["ok"], report["failed"], report["ledger_equal"]) == (0, 50, [], True)


def test_up_again_changes_nothing_and_prints_the_same_key(mesh: Mesh) -> None:
    before = mesh.child("gateway").identity
    assert mesh.key in mesh.up()
    assert mesh.child("gateway").identity == before


async def test_client_without_key_gets_the_typed_error(mesh: Mesh) -> None:
    async with openai.AsyncOpenAI(base_url=f"{mesh.base_url}/v1", api_key="sk-wrong", max_retries=0) as client:
        with pytest.raises(openai.AuthenticationError) as caught:
            await client.chat.completions.create(model=MODEL, messages=HELLO)  # type: ignore[arg-type]
    assert caught.value.code == "invalid_api_key"
    assert "sk-wrong" not in str(caught.value)
