"""The typed face: accepted, deltas, finished, usage; cancel; and the same refusals as REST."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from inferway.edge.v1 import inference_pb2 as pb
from inferway.engine.v1 import engine_pb2
from inferway.metering.v1 import records_pb2
from services.kit import status
from services.kit.errors import InferwayError
from tests.contract.gateway.conftest import Mesh
from tests.harness.gateway_service import LIMITED_SECRET, SECRET, RunningGateway, credentials
from tests.harness.tiny_model import NAME

WAIT_S = 10.0


def start(**fields: Any) -> pb.GenerateRequest:
    messages = [pb.ChatMessage(role="user", content="hello")]
    return pb.GenerateRequest(start=pb.GenerateStart(**{"model": NAME, "messages": messages, **fields}))


CANCEL = pb.GenerateRequest(cancel=pb.GenerateCancel())


def generate(gateway: RunningGateway, *, secret: str | None = SECRET, timeout: float = WAIT_S) -> Any:
    return gateway.inference.Generate(metadata=credentials(secret), timeout=timeout)


async def said(gateway: RunningGateway, *requests: pb.GenerateRequest, **options: Any) -> list[pb.GenerateResponse]:
    async def speak() -> AsyncIterator[pb.GenerateRequest]:
        for request in requests:
            yield request

    call = gateway.inference.Generate(speak(), metadata=credentials(options.get("secret", SECRET)), timeout=WAIT_S)
    return [response async for response in call]


async def refusal(gateway: RunningGateway, *requests: pb.GenerateRequest, **options: Any) -> InferwayError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await said(gateway, *requests, **options)
    return status.from_rpc_error(caught.value)


async def test_generate_tells_accepted_deltas_finished_and_usage(gateway: RunningGateway) -> None:
    responses = await said(gateway, start(max_completion_tokens=9))
    kinds = [response.WhichOneof("event") for response in responses]
    assert kinds == ["accepted", *["delta"] * (len(kinds) - 3), "finished", "usage"]
    accepted, usage = responses[0].accepted, responses[-1].usage
    assert accepted.model == NAME
    assert "".join(response.delta.text for response in responses) == "one two three"
    assert responses[-2].finished.finish_reason == "stop"
    (record,) = await gateway.records()
    assert (usage.prompt_tokens, usage.completion_tokens) == (record.prompt_tokens, record.completion_tokens) == (5, 3)
    assert (record.completion_id, record.surface) == (accepted.completion_id, "grpc")


async def test_generate_sampling_reaches_the_engine(gateway: RunningGateway, mesh: Mesh) -> None:
    await said(gateway, start(sampling=pb.Sampling(temperature=0, top_p=0.25, seed=5, n=1), stop=["a"], max_completion_tokens=2))
    attempt = (await mesh.engine.next_attempt()).start
    assert (attempt.sampling.temperature, attempt.sampling.top_p, attempt.sampling.seed) == (0.0, 0.25, 5)
    assert (list(attempt.stop), attempt.max_output_tokens) == (["a"], 2)


async def test_generate_cancel_stops_the_engine_and_tells_what_is_billed(mesh: Mesh) -> None:
    engine = await mesh.add_engine(play=None)
    gateway = await mesh.start_gateway()
    call = generate(gateway)
    await call.write(start())
    attempt = await engine.next_attempt()
    attempt.delta("so far")
    assert (await call.read()).HasField("accepted")
    assert (await call.read()).delta.text == "so far"
    await call.write(CANCEL)
    async with asyncio.timeout(WAIT_S):
        await attempt.cancelled.wait()
    attempt.finish(engine_pb2.FINISH_REASON_CANCELLED, output_tokens=4)
    finished, usage = await call.read(), await call.read()
    assert (finished.finished.finish_reason, usage.usage.completion_tokens) == ("cancelled", 4)
    assert await call.read() is grpc.aio.EOF
    (record,) = await gateway.records()
    assert (record.outcome, record.completion_tokens) == (records_pb2.REQUEST_OUTCOME_CANCELLED, 4)


async def test_generate_client_that_goes_away_stops_the_engine(mesh: Mesh) -> None:
    engine = await mesh.add_engine(play=None)
    gateway = await mesh.start_gateway()
    call = generate(gateway)
    await call.write(start())
    attempt = await engine.next_attempt()
    attempt.delta("x")
    assert (await call.read()).HasField("accepted")
    call.cancel()
    async with asyncio.timeout(WAIT_S):
        await attempt.cancelled.wait()


async def test_generate_clients_deadline_reaches_engine_and_router(mesh: Mesh) -> None:
    engine = await mesh.add_engine(play=None)
    gateway = await mesh.start_gateway()
    call = generate(gateway, timeout=2.0)
    await call.write(start())
    attempt = (await engine.next_attempt()).start
    record_of_now = await gateway.records()
    assert record_of_now == []
    assert attempt.deadline_unix_ms == mesh.router.wants[0].deadline_unix_ms
    async with asyncio.timeout(WAIT_S):
        assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED


@pytest.mark.parametrize(
    ("fields", "param", "reason"),
    [
        ({"model": ""}, "model", "INVALID_FIELD"),
        ({"messages": []}, "messages", "INVALID_FIELD"),
        ({"messages": [pb.ChatMessage(role="wizard")]}, "messages[0].role", "INVALID_FIELD"),
        ({"messages": [pb.ChatMessage(role="tool")]}, "messages[0].role", "UNSUPPORTED_FIELD"),
        ({"sampling": pb.Sampling(temperature=2.5)}, "sampling.temperature", "INVALID_FIELD"),
        ({"sampling": pb.Sampling(temperature=float("nan"))}, "sampling.temperature", "INVALID_FIELD"),
        ({"sampling": pb.Sampling(top_p=0)}, "sampling.top_p", "INVALID_FIELD"),
        ({"sampling": pb.Sampling(n=0)}, "sampling.n", "INVALID_FIELD"),
        ({"sampling": pb.Sampling(n=17)}, "sampling.n", "INVALID_FIELD"),
        ({"sampling": pb.Sampling(min_p=1.5)}, "sampling.min_p", "INVALID_FIELD"),
        ({"sampling": pb.Sampling(repetition_penalty=0)}, "sampling.repetition_penalty", "INVALID_FIELD"),
        ({"sampling": pb.Sampling(frequency_penalty=float("nan"))}, "sampling.frequency_penalty", "INVALID_FIELD"),
        ({"sampling": pb.Sampling(presence_penalty=3)}, "sampling.presence_penalty", "INVALID_FIELD"),
        ({"sampling": pb.Sampling(top_k=2**32 - 1)}, "sampling.top_k", "INVALID_FIELD"),
        ({"sampling": pb.Sampling(logit_bias={5: float("nan")})}, "sampling.logit_bias", "INVALID_FIELD"),
        ({"sampling": pb.Sampling(logit_bias={5: 101})}, "sampling.logit_bias", "INVALID_FIELD"),
        ({"sampling": pb.Sampling(logit_bias={2**32 - 1: 1})}, "logit_bias", "TOKEN_OUT_OF_RANGE"),
        ({"stop_token_ids": [1] * 17}, "stop_token_ids", "INVALID_FIELD"),
        ({"stop_token_ids": [100_000]}, "stop_token_ids", "TOKEN_OUT_OF_RANGE"),
        ({"prompt_token_ids": [1]}, "prompt_token_ids", "INVALID_FIELD"),
        ({"messages": [], "prompt_token_ids": [1, 100_000]}, "prompt", "TOKEN_OUT_OF_RANGE"),
        ({"min_tokens": 5, "max_completion_tokens": 4}, "min_tokens", "INVALID_FIELD"),
        ({"top_logprobs": 21}, "top_logprobs", "INVALID_FIELD"),
        ({"stop": ["a", ""]}, "stop", "INVALID_FIELD"),
        ({"stop": ["a"] * 5}, "stop", "INVALID_FIELD"),
        ({"max_completion_tokens": 0}, "max_completion_tokens", "INVALID_FIELD"),
        ({"max_completion_tokens": 2**31}, "max_completion_tokens", "INVALID_FIELD"),
        ({"idempotency_key": "once"}, "idempotency_key", "UNSUPPORTED_FIELD"),
    ],
)
async def test_generate_wrong_field_is_named(gateway: RunningGateway, fields: dict[str, Any], param: str, reason: str) -> None:
    error = await refusal(gateway, start(**fields))
    assert (error.code, error.reason, error.metadata["param"]) == ("INVALID_ARGUMENT", reason, param)
    assert await gateway.records() == []


async def test_generate_first_message_has_to_be_start(gateway: RunningGateway) -> None:
    assert (await refusal(gateway, CANCEL)).code == "INVALID_ARGUMENT"
    assert (await refusal(gateway)).code == "INVALID_ARGUMENT"


async def test_generate_bytes_that_are_no_message_are_the_callers_fault(gateway: RunningGateway) -> None:
    raw = gateway.channel.stream_stream("/inferway.edge.v1.Inference/Generate")
    call = raw(iter([b"\xff\xff\xff"]), metadata=credentials(SECRET), timeout=WAIT_S)
    assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "protobuf" in await call.details()


async def test_generate_second_start_before_the_first_token_is_named_too(mesh: Mesh) -> None:
    engine = await mesh.add_engine(play=None)
    gateway = await mesh.start_gateway()
    call = generate(gateway)
    await call.write(start())
    attempt = await engine.next_attempt()
    await call.write(start())
    await attempt.cancelled.wait()
    attempt.finish(engine_pb2.FINISH_REASON_CANCELLED)
    assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "start is allowed once" in await call.details()


async def test_generate_second_start_ends_the_call(mesh: Mesh) -> None:
    engine = await mesh.add_engine(play=None)
    gateway = await mesh.start_gateway()
    call = generate(gateway)
    await call.write(start())
    attempt = await engine.next_attempt()
    attempt.delta("x")
    assert (await call.read()).HasField("accepted")
    await call.write(start())
    await attempt.cancelled.wait()
    attempt.finish(engine_pb2.FINISH_REASON_CANCELLED)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        while await call.read() is not grpc.aio.EOF:
            pass
        await call
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_generate_without_or_with_a_forbidding_key_is_refused(gateway: RunningGateway) -> None:
    assert (await refusal(gateway, start(), secret=None)).code == "UNAUTHENTICATED"
    assert (await refusal(gateway, start(), secret=LIMITED_SECRET)).reason == "MODEL_NOT_FOUND"


async def test_list_served_models_shows_what_the_key_may_use(gateway: RunningGateway) -> None:
    request = pb.ListServedModelsRequest()
    response = await gateway.inference.ListServedModels(request, metadata=credentials(SECRET), timeout=WAIT_S)
    assert [(model.model, model.max_context_tokens) for model in response.models] == [(NAME, 512)]
    response = await gateway.inference.ListServedModels(request, metadata=credentials(LIMITED_SECRET), timeout=WAIT_S)
    assert list(response.models) == []
