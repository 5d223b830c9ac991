"""Everything that a gateway can ask for and must not get: each has its reason, none costs its neighbours or the replica anything."""

from typing import Any

from inferway.engine.v1 import engine_pb2
from tests.harness.engine import GatewayStub, Running, wait_load
from tests.harness.tiny_model import MAX_CONTEXT_TOKENS

NAN, INF = float("nan"), float("inf")
VOCAB_SIZE = 268
HUGE = 2**32 - 1
FIELD, RANGE, CONTEXT = ("INVALID_FIELD", False), ("TOKEN_OUT_OF_RANGE", False), ("CONTEXT_LENGTH_EXCEEDED", False)


def sampling(**fields: Any) -> dict[str, Any]:
    return {"sampling": engine_pb2.AttemptSampling(**{"temperature": 1.0, "top_p": 1.0, **fields})}


def biases(*pairs: tuple[int, float]) -> dict[str, Any]:
    return sampling(logit_bias=[engine_pb2.LogitBias(token_id=token_id, bias=bias) for token_id, bias in pairs])


TABLE: dict[str, tuple[dict[str, Any], tuple[str, bool]]] = {
    "empty prompt": ({"prompt_token_ids": []}, FIELD),
    "first id beyond the vocabulary": ({"prompt_token_ids": [5, VOCAB_SIZE]}, RANGE),
    "largest id there is": ({"prompt_token_ids": [HUGE]}, RANGE),
    "delivered id beyond the vocabulary": ({"delivered_token_ids": [999_999_999]}, RANGE),
    "more delivered than asked for": ({"delivered_token_ids": [5] * 9}, FIELD),
    "prompt as long as the context": ({"prompt_token_ids": [5] * MAX_CONTEXT_TOKENS, "max_output_tokens": 1}, CONTEXT),
    "prompt far beyond the context": ({"prompt_token_ids": [5] * 100_000}, CONTEXT),
    "output beyond what the prompt leaves": ({"max_output_tokens": MAX_CONTEXT_TOKENS - 2}, CONTEXT),
    "largest output there is": ({"max_output_tokens": HUGE}, CONTEXT),
    "no output": ({"max_output_tokens": 0}, FIELD),
    "least output above the most": ({"min_output_tokens": 9}, FIELD),
    "temperature not a number": (sampling(temperature=NAN), FIELD),
    "temperature infinite": (sampling(temperature=INF), FIELD),
    "temperature negative": (sampling(temperature=-0.1), FIELD),
    "temperature too high": (sampling(temperature=2.1), FIELD),
    "top_p not a number": (sampling(top_p=NAN), FIELD),
    "top_p zero": (sampling(top_p=0), FIELD),
    "top_p above one": (sampling(top_p=1.1), FIELD),
    "min_p not a number": (sampling(min_p=NAN), FIELD),
    "min_p negative": (sampling(min_p=-0.1), FIELD),
    "min_p above one": (sampling(min_p=1.1), FIELD),
    "repetition_penalty not a number": (sampling(repetition_penalty=NAN), FIELD),
    "repetition_penalty negative": (sampling(repetition_penalty=-1), FIELD),
    "repetition_penalty infinite": (sampling(repetition_penalty=INF), FIELD),
    "frequency_penalty not a number": (sampling(frequency_penalty=NAN), FIELD),
    "frequency_penalty too low": (sampling(frequency_penalty=-2.1), FIELD),
    "presence_penalty infinite": (sampling(presence_penalty=INF), FIELD),
    "bias of an unknown token": (biases((VOCAB_SIZE, 1.0)), RANGE),
    "bias not a number": (biases((5, NAN)), FIELD),
    "bias far too large": (biases((5, 1e9)), FIELD),
    "two biases of one token": (biases((5, 1.0), (5, 2.0)), FIELD),
    "100 000 biases": (biases(*[(token_id, 1.0) for token_id in range(100_000)]), FIELD),
    "empty stop string": ({"stop": [""]}, FIELD),
    "17 stop strings": ({"stop": ["x"] * 17}, FIELD),
    "stop token beyond the vocabulary": ({"stop_token_ids": [VOCAB_SIZE]}, RANGE),
    "17 stop tokens": ({"stop_token_ids": range(17)}, FIELD),
    "21 log-probabilities": ({"num_logprobs": 21}, FIELD),
    "21 log-probabilities of the prompt": ({"num_prompt_logprobs": 21}, FIELD),
    "salt of a kilobyte": ({"cache_salt": b"s" * 1024}, FIELD),
    "tenant id too long": ({"tenant_id": "t" * 129}, FIELD),
    "request id too long": ({"request_id": "r" * 1_000_000}, FIELD),
    "charge id too long": ({"charge_id": "c" * 129}, FIELD),
    "another model": ({"model": "other"}, ("MODEL_NOT_FOUND", True)),
    "x" * 129: ({}, FIELD),
    "y" * 1_000_000: ({}, FIELD),
    "": ({}, FIELD),
}
DUPLICATE = ("DUPLICATE_ATTEMPT", False)


async def test_bad_input_is_refused_by_its_reason_and_harms_nobody(running: Running) -> None:
    engine, channel = running
    gateway = await GatewayStub(channel).hello()
    before = await gateway.run("before", max_output_tokens=200)
    engine.gate.shut()
    await gateway.start("neighbour", max_output_tokens=200)
    told = {}
    for name, (fields, _) in TABLE.items():
        engine.gate.allow()
        bad = await gateway.run(name, **fields)
        assert bad.failed is not None, name[:40]
        assert bad.failed.message, name[:40]
        assert len(bad.failed.message) < 200, name[:40]
        told[name] = (bad.failed.reason, bad.failed.retryable)
    engine.gate.open()
    (neighbour,) = await gateway.until_end("neighbour")
    assert told == {name: reason for name, (_, reason) in TABLE.items()}
    assert neighbour.token_ids == before.token_ids
    assert {record.attempt_id for record in await engine.records()} == {"before", "neighbour"}
    assert (await wait_load(channel, num_running=0, num_waiting=0)).num_used_blocks == 0


async def test_bad_input_an_id_that_runs_is_refused_however_often_and_goes_on(running: Running) -> None:
    engine, channel = running
    gateway = await GatewayStub(channel).hello()
    reference = await gateway.run("reference", max_output_tokens=20)
    engine.gate.shut()
    await gateway.start("a", max_output_tokens=20)
    for _ in range(50):
        await gateway.start("a", prompt_token_ids=[99], max_output_tokens=20)
    refused = []
    while len(refused) < 50:
        message = await gateway.read()
        assert message is not None
        refused += [(event.failed.reason, event.failed.retryable) for event in message.events if event.HasField("failed")]
    assert set(refused) == {DUPLICATE}
    gateway.heard.clear()
    engine.gate.open()
    (heard,) = await gateway.until_end("a")
    assert heard.token_ids == reference.token_ids


async def test_bad_input_cancel_of_what_is_not_there_is_no_fault(running: Running) -> None:
    engine, channel = running
    gateway, other = await GatewayStub(channel).hello(), await GatewayStub(channel, "gateway-2").hello()
    engine.gate.shut()
    await other.start("its own", max_output_tokens=20)
    for name in ("never started", "its own", "", "z" * 1_000_000):
        await gateway.cancel(name)
    engine.gate.open()
    ended = await gateway.run("late", deadline_unix_ms=1)
    assert ended.finished is not None
    for _ in range(1000):
        await gateway.cancel("late")
    assert (await gateway.run("after")).finished is not None
    (heard,) = await other.until_end("its own")
    assert heard.finished is not None
    assert heard.finished.reason == engine_pb2.FINISH_REASON_LENGTH


async def test_bad_input_longest_prompt_and_output_that_fit_are_served(running: Running) -> None:
    gateway = await GatewayStub(running[1]).hello()
    heard = await gateway.run("a", prompt_token_ids=[5] * (MAX_CONTEXT_TOKENS - 1), max_output_tokens=1)
    assert len(heard.token_ids) == 1
    heard = await gateway.run("b", prompt_token_ids=[5], max_output_tokens=MAX_CONTEXT_TOKENS - 1)
    assert len(heard.token_ids) == MAX_CONTEXT_TOKENS - 1
