"""Faults that users of comparable systems met in the answers themselves: streams, limits, stop strings, seeds, counts."""

from __future__ import annotations

import asyncio
import json
import pathlib
from typing import Any

import jsonschema
import pytest

from tests.harness.bill import Bill
from tests.harness.measure import at_rest, num_running
from tests.harness.mesh import MODEL, Mesh
from tests.harness.rest import HELLO, Rest, billed, error_of, said
from tests.harness.traffic import Clients

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

SCHEMAS = json.loads((pathlib.Path(__file__).parents[1] / "data" / "openai" / "chat_schemas.json").read_text())
CONTEXT = 8192
STORY = [{"role": "user", "content": "Tell me a story."}]
MANY = 40


def check(name: str, value: object) -> None:
    jsonschema.Draft202012Validator({**SCHEMAS, "$ref": f"#/$defs/{name}"}).validate(value)


@pytest.mark.parametrize("options", [{}, {"stream_options": None}, {"stream_options": {"include_usage": False}}], ids=str)
async def test_st_02_every_chunk_obeys_the_published_schema(mesh: Mesh, options: dict[str, Any]) -> None:
    async with Rest(mesh) as rest:
        text = (await rest.answer(max_tokens=12))["choices"][0]["message"]["content"]
        ends = {"length": await rest.chunks(max_tokens=12, **options), "stop": await rest.chunks(stop=text[3:6], max_tokens=12, **options)}
    for reason, chunks in ends.items():
        for chunk in chunks:
            check("CreateChatCompletionStreamResponse", chunk)
            assert len(chunk["choices"]) == 1 and "usage" not in chunk
        choices = [chunk["choices"][0] for chunk in chunks]
        assert [choice["finish_reason"] for choice in choices] == [None] * (len(choices) - 1) + [reason]
        assert [choice["delta"].get("role") for choice in choices] == ["assistant"] + [None] * (len(choices) - 1)
        assert len({(chunk["id"], chunk["created"], chunk["model"], chunk["object"]) for chunk in chunks}) == 1


async def test_st_05_tokens_reach_the_client_while_the_next_ones_are_made(mesh: Mesh) -> None:
    """Not in one burst at the end, nor in blocks of some proxy's size, however the client would like it to be compressed."""
    await at_rest(mesh)
    async with Rest(mesh) as rest:
        rest.http.headers["accept-encoding"] = "gzip, br"
        num_events, max_tokens = 0, 4 * MANY
        async for _ in rest.events(max_tokens=max_tokens):
            num_events += 1
            if num_events in (2, max_tokens // 2):
                assert await num_running(mesh) == 1, "the engine was done before this event arrived"
    assert num_events > max_tokens // 2


async def test_st_06_usage_only_when_asked_for_and_equal_to_the_bill(mesh: Mesh) -> None:
    async with Rest(mesh) as rest:
        *chunks, last = await rest.chunks(stream_options={"include_usage": True})
    assert last["choices"] == [] and all(chunk["choices"] and chunk["usage"] is None for chunk in chunks)
    (row,) = await Bill(mesh).until_rows([last["id"]])
    assert (row.prompt_tokens, row.completion_tokens) == (last["usage"]["prompt_tokens"], last["usage"]["completion_tokens"])


NULLS = dict.fromkeys(
    ("stop", "seed", "tools", "user", "n", "top_p", "stream", "stream_options", "response_format", "logit_bias", "metadata")
)


async def test_oa_01_nulls_zeros_and_falses_mean_what_they_say(mesh: Mesh) -> None:
    async with Rest(mesh) as rest:
        answers = [await rest.answer(**NULLS), await rest.answer(top_p=1, frequency_penalty=0, logprobs=False, tools=[], n=1)]
    for answer in answers:
        check("CreateChatCompletionResponse", answer)
        assert type(answer["created"]) is int
        assert (answer["choices"][0]["index"], answer["choices"][0]["logprobs"]) == (0, None)
        assert all(type(count) is int for name, count in answer["usage"].items() if name.endswith("tokens"))
    assert len({answer["choices"][0]["message"]["content"] for answer in answers}) == 1, "temperature 0 is greedy, not unset"


@pytest.mark.parametrize("stream", [False, True])
async def test_oa_04_limits_by_either_name_and_up_to_the_last_token_of_the_context(mesh: Mesh, stream: bool) -> None:
    """The prompt is as long as makes the rest of the context short: then even "no limit" ends soon."""
    async with Rest(mesh) as rest:
        empty = (await rest.answer(max_tokens=1))["usage"]["prompt_tokens"]
        filler = [{"role": "user", "content": "Say hello." + " word" * (CONTEXT - 10 - empty)}]
        num_prompt = (await rest.answer(messages=filler, max_tokens=1))["usage"]["prompt_tokens"]
        room = CONTEXT - num_prompt
        assert 0 < room < 20

        async def num_completion(**fields: Any) -> int:
            if stream:
                return int((await rest.chunks(stream_options={"include_usage": True}, **fields))[-1]["usage"]["completion_tokens"])
            return int((await rest.answer(**fields))["usage"]["completion_tokens"])

        assert await num_completion(messages=filler, max_tokens=room) == room
        assert await num_completion(messages=filler, max_tokens=None) == room
        assert await num_completion(max_tokens=None, max_completion_tokens=5) == 5
        assert await num_completion(max_tokens=50, max_completion_tokens=5) == 5
        too_long = [{"role": "user", "content": filler[0]["content"] + " word" * room}]
        for fields in ({"messages": filler, "max_tokens": room + 1}, {"max_tokens": CONTEXT}, {"messages": too_long, "max_tokens": None}):
            error = error_of(await rest.chat(stream=stream, **fields), 400)
            assert error["code"] == "context_length_exceeded" and str(CONTEXT) in error["message"]
        assert f"{CONTEXT} prompt tokens" in error["message"]


async def test_oa_05_string_and_text_part_are_the_same_message(mesh: Mesh) -> None:
    async with Rest(mesh) as rest:
        answers = [
            await rest.answer(messages=[{"role": role, "content": content}, *HELLO])
            for role in ("system", "developer")
            for content in ("Be kind.", [{"type": "text", "text": "Be kind."}])
        ]
    assert len({(answer["choices"][0]["message"]["content"], answer["usage"]["prompt_tokens"]) for answer in answers}) == 1


@pytest.mark.parametrize("role", ["user", "system", "assistant"])
@pytest.mark.parametrize("kind", ["image_url", "input_audio", "file", "hologram"])
async def test_oa_05_part_that_the_model_cannot_see_is_refused_by_its_place(mesh: Mesh, role: str, kind: str) -> None:
    parts = [{"type": "text", "text": "x"}, {"type": kind, kind: {"url": "http://127.0.0.1:9/"}}]
    async with Rest(mesh) as rest:
        error = error_of(await rest.chat(messages=[*HELLO, {"role": role, "content": parts}]), 400)
    assert error["param"].startswith("messages[1].content[1]")


async def test_oa_07_no_part_of_a_stop_string_leaks(mesh: Mesh) -> None:
    async with Rest(mesh) as rest:
        whole = (await rest.answer(messages=STORY, max_tokens=MANY))["choices"][0]["message"]["content"]
        middle = len(whole) // 2
        for stops in (
            [whole[middle : middle + 8]],
            [whole[middle - 2 : middle + 9], whole[middle : middle + 8], whole[middle + 3 : middle + 5], "never said"],
            [whole[:6]],
            [whole[-2:]],
            ["\u00e9\U0001f600", whole + "?"],
        ):
            # The stop string that is complete first ends the text.
            end, length = min(((whole.index(stop) + len(stop), len(stop)) for stop in stops if stop in whole), default=(len(whole), 0))
            expected = whole[: end - length]
            answer = await rest.answer(messages=STORY, max_tokens=MANY, stop=stops)
            chunks = await rest.chunks(messages=STORY, max_tokens=MANY, stop=stops, stream_options={"include_usage": True})
            assert answer["choices"][0]["message"]["content"] == said(chunks) == expected
            reason = "length" if expected == whole else "stop"
            assert {answer["choices"][0]["finish_reason"], chunks[-2]["choices"][0]["finish_reason"]} == {reason}
            assert billed(answer["usage"]) == billed(chunks[-1]["usage"])


async def test_oa_10_a_seed_repeats_amid_other_load_and_nothing_else_does(mesh: Mesh) -> None:
    async with Rest(mesh) as rest:

        async def text(seed: int | None) -> str:
            answer = await rest.answer(messages=STORY, max_tokens=8, temperature=1, seed=seed)
            return str(answer["choices"][0]["message"]["content"])

        same = await asyncio.gather(
            *(text(42) for _ in range(10)), *(text(-(2**63)) for _ in range(2)), *(text(2**63 - 1) for _ in range(2))
        )
        other = await asyncio.gather(*(text(None) for _ in range(4)))
        for seed in (2**63, -(2**63) - 1, 1.5, "42", True):
            assert error_of(await rest.chat(seed=seed), 400)["param"] == "seed"
    assert [len(set(texts)) for texts in (same[:10], same[10:12], same[12:], same, other)] == [1, 1, 1, 3, 4]


async def test_mt_08_the_same_request_has_the_same_usage_whichever_way_it_is_asked(mesh: Mesh) -> None:
    async with Rest(mesh) as rest, Clients(mesh) as clients:
        whole = await rest.answer(messages=STORY, max_tokens=9)
        told = await clients.ask_grpc(STORY[0]["content"], 9)
        silent = await rest.chunks(messages=STORY, max_tokens=9)
        loud = await rest.chunks(messages=STORY, max_tokens=9, stream_options={"include_usage": True})
        ids = [whole["id"], told.completion_id, silent[0]["id"], loud[0]["id"]]
    rows = await Bill(mesh).until_rows(ids)
    bills = {(row.prompt_tokens, row.completion_tokens, row.model) for row in rows}
    num_prompt, num_completion = billed(whole["usage"])
    assert (num_completion, bills) == (9, {(num_prompt, 9, MODEL)})
    assert (told.prompt_tokens, told.completion_tokens, billed(loud[-1]["usage"])) == (num_prompt, 9, (num_prompt, 9))
    for row, usage in ((rows[0], whole["usage"]), (rows[-1], loud[-1]["usage"])):
        assert row.cached_prompt_tokens == usage["prompt_tokens_details"]["cached_tokens"] < num_prompt
    assert said(silent) == said(loud) == told.text == whole["choices"][0]["message"]["content"]
