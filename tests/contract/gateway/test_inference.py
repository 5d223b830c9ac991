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
from tests.harness.session_engine import PlayedAttempt
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


async def test_generate_every_wish_reaches_the_engine(gateway: RunningGateway, mesh: Mesh) -> None:
    sampling = pb.Sampling(
        top_k=3, min_p=0.25, repetition_penalty=1.5, frequency_penalty=-1, presence_penalty=2, logit_bias={5: -100, 6: 1.5}
    )
    wishes = {"stop_token_ids": [7, 8], "min_tokens": 2, "ignore_eos": True, "include_stop": True}
    await said(gateway, start(messages=[], prompt_token_ids=[9, 10], sampling=sampling, **wishes))
    attempt = (await mesh.engine.next_attempt()).start
    assert list(attempt.prompt_token_ids) == [9, 10]
    found = attempt.sampling
    assert (found.top_k, found.min_p, found.repetition_penalty) == (3, 0.25, 1.5)
    assert (found.frequency_penalty, found.presence_penalty) == (-1, 2)
    assert {bias.token_id: bias.bias for bias in found.logit_bias} == {5: -100, 6: 1.5}
    assert (list(attempt.stop_token_ids), attempt.min_output_tokens, attempt.ignore_eos, attempt.include_stop) == ([7, 8], 2, True, True)
    assert not attempt.HasField("num_logprobs")


async def test_generate_choices_have_their_indexes_and_one_usage_at_the_end(mesh: Mesh) -> None:
    def play(attempt: PlayedAttempt) -> None:
        attempt.delta(f"say {attempt.start.choice}", num_tokens=attempt.start.choice + 1)
        attempt.finish(engine_pb2.FINISH_REASON_LENGTH if attempt.start.choice == 1 else engine_pb2.FINISH_REASON_STOP)

    await mesh.add_engine(play)
    gateway = await mesh.start_gateway()
    responses = await said(gateway, start(sampling=pb.Sampling(n=3, seed=4)))
    kinds = [response.WhichOneof("event") for response in responses]
    assert kinds == ["accepted", *["delta"] * (len(kinds) - 5), *["finished"] * 3, "usage"]
    texts = dict.fromkeys(range(3), "")
    for response in responses:
        if response.HasField("delta"):
            texts[response.delta.index] += response.delta.text
    assert texts == {0: "say 0", 1: "say 1", 2: "say 2"}
    ends = [(response.finished.index, response.finished.finish_reason) for response in responses[-4:-1]]
    assert ends == [(0, "stop"), (1, "length"), (2, "stop")]
    (record,) = await gateway.records()
    usage = responses[-1].usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (record.prompt_tokens, record.completion_tokens) == (5, 6)
    starts = [(await mesh.engine.next_attempt()).start for _ in range(3)]
    assert {attempt.choice for attempt in starts} == {0, 1, 2}
    assert {attempt.sampling.seed for attempt in starts} == {4}
    assert len({attempt.attempt_id for attempt in starts}) == 3


async def test_generate_logprobs_come_with_their_text(gateway: RunningGateway) -> None:
    responses = await said(gateway, start(top_logprobs=2))
    deltas = [response.delta for response in responses if response.HasField("delta")]
    for delta in deltas:
        assert b"".join(entry.chosen.token for entry in delta.logprobs) == delta.text.encode()
    entries = [entry for delta in deltas for entry in delta.logprobs]
    assert [(entry.chosen.token_id, entry.chosen.logprob, len(entry.top)) for entry in entries] == [
        (100, -0.5, 2),
        (101, -0.5, 2),
        (102, -0.5, 2),
    ]
    assert not any(response.delta.logprobs for response in await said(gateway, start()))


async def test_generate_refusal_of_the_engine_is_invalid_argument_and_bills_nothing(mesh: Mesh) -> None:
    await mesh.add_engine(lambda attempt: attempt.fail("INVALID_FIELD", retryable=False))
    gateway = await mesh.start_gateway()
    error = await refusal(gateway, start())
    assert (error.code, error.reason) == ("INVALID_ARGUMENT", "INVALID_FIELD")
    (record,) = await gateway.records()
    assert (record.prompt_tokens, record.completion_tokens, record.num_attempts) == (0, 0, 1)


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
        ({"sampling": pb.Sampling(temperature=-0.5)}, "sampling.temperature", "INVALID_FIELD"),
        ({"sampling": pb.Sampling(temperature=float("inf"))}, "sampling.temperature", "INVALID_FIELD"),
        ({"sampling": pb.Sampling(top_p=0)}, "sampling.top_p", "INVALID_FIELD"),
        ({"sampling": pb.Sampling(top_p=float("nan"))}, "sampling.top_p", "INVALID_FIELD"),
        ({"sampling": pb.Sampling(min_p=float("nan"))}, "sampling.min_p", "INVALID_FIELD"),
        ({"sampling": pb.Sampling(repetition_penalty=float("nan"))}, "sampling.repetition_penalty", "INVALID_FIELD"),
        ({"sampling": pb.Sampling(presence_penalty=float("-inf"))}, "sampling.presence_penalty", "INVALID_FIELD"),
        ({"sampling": pb.Sampling(logit_bias=dict.fromkeys(range(100_000), 1.0))}, "sampling.logit_bias", "INVALID_FIELD"),
        ({"sampling": pb.Sampling(n=0)}, "sampling.n", "INVALID_FIELD"),
        ({"sampling": pb.Sampling(n=17)}, "sampling.n", "INVALID_FIELD"),
        ({"sampling": pb.Sampling(min_p=1.5)}, "sampling.min_p", "INVALID_FIELD"),
        ({"sampling": pb.Sampling(repetition_penalty=0)}, "sampling.repetition_penalty", "INVALID_FIELD"),
        ({"sampling": pb.Sampling(frequency_penalty=float("nan"))}, "sampling.frequency_penalty", "INVALID_FIELD"),
        ({"sampling": pb.Sampling(presence_penalty=3)}, "sampling.presence_penalty", "INVALID_FIELD"),
        ({"sampling": pb.Sampling(top_k=2**32 - 1)}, "sampling.top_k", "INVALID_FIELD"),
        ({"sampling": pb.Sampling(logit_bias={5: float("nan")})}, "sampling.logit_bias", "INVALID_FIELD"),
        ({"sampling": pb.Sampling(logit_bias={5: 101})}, "sampling.logit_bias", "INVALID_FIELD"),
        ({"sampling": pb.Sampling(logit_bias={2**32 - 1: 1})}, "sampling.logit_bias", "TOKEN_OUT_OF_RANGE"),
        ({"stop_token_ids": [1] * 17}, "stop_token_ids", "INVALID_FIELD"),
        ({"stop_token_ids": [100_000]}, "stop_token_ids", "TOKEN_OUT_OF_RANGE"),
        ({"prompt_token_ids": [1]}, "prompt_token_ids", "INVALID_FIELD"),
        ({"messages": [], "prompt_token_ids": [1, 100_000]}, "prompt_token_ids", "TOKEN_OUT_OF_RANGE"),
        ({"messages": [], "prompt_token_ids": [1] * 600}, "prompt_token_ids", "CONTEXT_LENGTH_EXCEEDED"),
        ({"messages": [], "prompt_token_ids": [1], "max_completion_tokens": 600}, "max_completion_tokens", "CONTEXT_LENGTH_EXCEEDED"),
        ({"messages": [], "prompt_token_ids": [1], "min_tokens": 600}, "min_tokens", "CONTEXT_LENGTH_EXCEEDED"),
        ({"messages": [pb.ChatMessage(role="user", content="x" * 600)]}, "messages", "CONTEXT_LENGTH_EXCEEDED"),
        ({"max_completion_tokens": 600}, "max_completion_tokens", "CONTEXT_LENGTH_EXCEEDED"),
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
