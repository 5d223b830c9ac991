"""POST /v1/completions with the official client, on the real mesh: every way to ask gives the same text and the right bill."""

from __future__ import annotations

import openai
import pytest
from openai.types import Completion

from inferway.metering.v1 import metering_pb2 as pb
from tests.harness.bill import Bill
from tests.harness.mesh import MODEL, Mesh
from tests.harness.traffic import Clients

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

IDS = [504, 253, 260]


async def billed(mesh: Mesh, answer: Completion) -> pb.LedgerRequest:
    """The one row of an answer, equal to the usage that its client was told."""
    (row,) = await Bill(mesh).until_rows([answer.id])
    assert answer.usage is not None
    assert (row.prompt_tokens, row.completion_tokens) == (answer.usage.prompt_tokens, answer.usage.completion_tokens)
    return row


async def test_whole_and_streamed_completions_are_one_text_and_one_bill(mesh: Mesh) -> None:
    async with Clients(mesh) as clients:
        whole = await clients.openai.completions.create(model=MODEL, prompt="Once upon a time", max_tokens=8, temperature=0)
        stream = await clients.openai.completions.create(
            model=MODEL, prompt="Once upon a time", max_tokens=8, temperature=0, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    assert "".join(choice.text for chunk in chunks for choice in chunk.choices) == whole.choices[0].text
    assert chunks[-1].usage == whole.usage
    assert (whole.object, whole.choices[0].finish_reason) == ("text_completion", "length")
    assert (await billed(mesh, whole)).surface == "rest"
    (streamed,) = await Bill(mesh).until_rows([chunks[0].id])
    assert (streamed.surface, streamed.completion_tokens) == ("rest-stream", 8)


async def test_default_length_is_that_of_the_api(mesh: Mesh) -> None:
    async with Clients(mesh) as clients:
        answer = await clients.openai.completions.create(model=MODEL, prompt=IDS, temperature=0, extra_body={"ignore_eos": True})
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (len(IDS), 16)


async def test_choices_of_one_seed_differ_and_their_prompt_is_billed_once(mesh: Mesh) -> None:
    async with Clients(mesh) as clients:
        ask = clients.openai.completions.create
        answer = await ask(model=MODEL, prompt=IDS, max_tokens=8, n=3, seed=7, extra_body={"ignore_eos": True})
        again = await ask(model=MODEL, prompt=IDS, max_tokens=8, n=3, seed=7, extra_body={"ignore_eos": True})
    texts = [choice.text for choice in answer.choices]
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert len(set(texts)) == 3
    assert texts == [choice.text for choice in again.choices]
    row = await billed(mesh, answer)
    assert (row.prompt_tokens, row.completion_tokens) == (len(IDS), 24)


async def test_echo_with_logprobs_scores_the_prompt(mesh: Mesh) -> None:
    async with Clients(mesh) as clients:
        answer = await clients.openai.completions.create(model=MODEL, prompt=IDS, max_tokens=2, temperature=0, echo=True, logprobs=2)
        plain = await clients.openai.completions.create(model=MODEL, prompt=IDS, max_tokens=2, temperature=0)
    choice = answer.choices[0]
    assert choice.logprobs is not None
    assert choice.text.endswith(plain.choices[0].text)
    logprobs, tops = choice.logprobs.token_logprobs or [], choice.logprobs.top_logprobs or []
    assert len(logprobs) == len(tops) == len(choice.logprobs.tokens or []) == len(choice.logprobs.text_offset or []) == len(IDS) + 2
    assert (logprobs[0], tops[0]) == (None, None)
    assert all(isinstance(value, float) and value <= 0 for value in logprobs[1:])
    assert "".join(choice.logprobs.tokens or []) == choice.text


async def test_what_cannot_be_served_is_refused_by_name(mesh: Mesh) -> None:
    async with Clients(mesh) as clients:
        for fields, param, code in (
            ({"prompt": ["a", "b"]}, "prompt", "unsupported_parameter"),
            ({"prompt": "a", "suffix": "b"}, "suffix", "unsupported_parameter"),
            ({"prompt": "a", "best_of": 2}, "best_of", "unsupported_parameter"),
            ({"prompt": [10_000_000]}, "prompt", "token_out_of_range"),
            ({"prompt": ""}, "prompt", "invalid_value"),
            ({"prompt": "a", "max_tokens": 100_000}, "max_tokens", "context_length_exceeded"),
        ):
            with pytest.raises(openai.BadRequestError) as caught:
                await clients.openai.completions.create(model=MODEL, **fields)  # type: ignore[call-overload]
            assert (caught.value.param, caught.value.code) == (param, code)
