"""Several answers to one request, and how likely their tokens were, from the real mesh; one request is one row of the bill."""

from __future__ import annotations

from typing import Any

import pytest

from inferway.edge.v1 import inference_pb2, inference_pb2_grpc
from tests.harness.bill import Bill
from tests.harness.mesh import MODEL, Mesh
from tests.harness.rest import HELLO, Rest, said_by_choice
from tests.harness.traffic import Clients

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

COUNT = 4
STORY: Any = [{"role": "user", "content": "Tell me a story."}]
SEEDED = {"messages": STORY, "max_tokens": 8, "temperature": 1, "seed": 42}


def texts(answer: dict[str, Any]) -> list[str]:
    return [choice["message"]["content"] for choice in answer["choices"]]


async def test_choices_of_a_seed_differ_and_repeat_however_they_are_asked_for(mesh: Mesh) -> None:
    async with Rest(mesh) as rest:
        answers = [await rest.answer(**SEEDED, n=COUNT) for _ in range(2)]
        single = await rest.answer(**SEEDED)
        chunks = await rest.chunks(**SEEDED, n=COUNT, stream_options={"include_usage": True})
    assert texts(answers[0]) == texts(answers[1]) == said_by_choice(chunks)
    assert len(set(texts(answers[0]))) == COUNT
    assert texts(answers[0])[0] == texts(single)[0]
    assert answers[0]["usage"]["completion_tokens"] == COUNT * 8
    assert answers[0]["usage"]["prompt_tokens"] == single["usage"]["prompt_tokens"]
    rows = await Bill(mesh).until_rows([answers[0]["id"], chunks[0]["id"]], COUNT)
    for row in rows:
        assert (row.prompt_tokens, row.completion_tokens) == (single["usage"]["prompt_tokens"], COUNT * 8)
        assert len(row.attempts) == COUNT
        assert sum(attempt.output_tokens for attempt in row.attempts) == row.completion_tokens


async def test_greedy_choices_are_equal_and_each_is_paid_for(mesh: Mesh) -> None:
    async with Rest(mesh) as rest:
        answer = await rest.answer(n=COUNT, max_tokens=6)
    assert len(set(texts(answer))) == 1
    assert [choice["index"] for choice in answer["choices"]] == list(range(COUNT))
    assert answer["usage"]["completion_tokens"] == COUNT * 6


@pytest.mark.parametrize("num_top", [0, 3])
async def test_logprobs_have_one_entry_per_billed_token_and_come_with_their_text(mesh: Mesh, num_top: int) -> None:
    fields = {"logprobs": True, "top_logprobs": num_top, "max_tokens": 9, "n": 2}
    async with Rest(mesh) as rest:
        answer = await rest.answer(**fields)
        chunks = await rest.chunks(**fields)
        plain = await rest.answer(max_tokens=9)
    collected: dict[int, list[Any]] = {0: [], 1: []}
    for choice in (choice for chunk in chunks for choice in chunk["choices"]):
        content = choice["logprobs"]["content"] if choice["logprobs"] else []
        assert "".join(token["token"] for token in content) == (choice["delta"].get("content") or "")
        collected[choice["index"]] += content
    for choice in answer["choices"]:
        content = choice["logprobs"]["content"]
        assert collected[choice["index"]] == content
        assert len(content) == 9
        assert b"".join(bytes(token["bytes"]) for token in content).decode() == choice["message"]["content"]
        assert all(token["logprob"] <= 0 and len(token["top_logprobs"]) == num_top for token in content)
    assert texts(answer)[0] == texts(plain)[0], "asking for log-probabilities changes nothing else"
    assert plain["choices"][0]["logprobs"] is None


async def test_grpc_gives_the_same_choices_and_logprobs(mesh: Mesh) -> None:
    start = inference_pb2.GenerateStart(
        model=MODEL,
        messages=[inference_pb2.ChatMessage(role="user", content=STORY[0]["content"])],
        sampling=inference_pb2.Sampling(temperature=1, seed=42, n=COUNT),
        max_completion_tokens=8,
        top_logprobs=2,
    )
    async with Rest(mesh) as rest, Clients(mesh) as clients:
        answer = await rest.answer(**SEEDED, n=COUNT, logprobs=True, top_logprobs=2)
        stub: Any = inference_pb2_grpc.InferenceStub(clients.channel)
        metadata = (("authorization", f"Bearer {mesh.key}"),)
        call = stub.Generate(iter([inference_pb2.GenerateRequest(start=start)]), timeout=30, metadata=metadata)
        responses = [response async for response in call]
    said, logprobs = [""] * COUNT, [list[float]() for _ in range(COUNT)]
    for delta in (response.delta for response in responses if response.HasField("delta")):
        said[delta.index] += delta.text
        logprobs[delta.index] += [entry.chosen.logprob for entry in delta.logprobs]
    assert said == texts(answer)
    assert logprobs == [[token["logprob"] for token in choice["logprobs"]["content"]] for choice in answer["choices"]]
    assert [response.WhichOneof("event") for response in responses[-COUNT - 1 :]] == ["finished"] * COUNT + ["usage"]
    assert responses[-1].usage.completion_tokens == answer["usage"]["completion_tokens"]


async def test_bias_and_stop_tokens_decide_what_is_said(mesh: Mesh) -> None:
    async with Rest(mesh) as rest:
        forced = await rest.answer(messages=HELLO, max_tokens=5, logit_bias={"100": 100})
        stopped = await rest.answer(messages=HELLO, max_tokens=5, logit_bias={"100": 100}, stop_token_ids=[100])
        patient = await rest.answer(messages=HELLO, max_tokens=5, logit_bias={"100": 100}, stop_token_ids=[100], min_tokens=3)
        told = forced["choices"][0]["message"]["content"]
        assert told == told[: len(told) // 5] * 5
        assert (stopped["choices"][0]["finish_reason"], stopped["choices"][0]["message"]["content"]) == ("stop", "")
        assert stopped["usage"]["completion_tokens"] == 0
        assert patient["usage"]["completion_tokens"] == 3
