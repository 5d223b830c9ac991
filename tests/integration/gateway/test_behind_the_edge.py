"""The gateway behind a real Envoy, asked by the official OpenAI client: answers, typed errors, broken streams and hang-ups."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from services.kit.etcd import EtcdClient
from tests.harness.dispatch_router import DispatchRouter
from tests.harness.edge import running_envoy
from tests.harness.etcd import EtcdServer
from tests.harness.gateway_service import SECRET, RunningGateway, fill_registry, request
from tests.harness.session_engine import PlayedAttempt, SessionEngine, echo
from tests.harness.tiny_model import NAME

WAIT_S = 20.0
MESSAGES: Any = [{"role": "user", "content": "hello"}]


@dataclass
class Site:
    """Everything from the client's port to the engine."""

    url: str
    gateway: RunningGateway
    router: DispatchRouter
    engine: SessionEngine

    def client(self, key: str = SECRET) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(api_key=key, base_url=f"{self.url}/v1", max_retries=0, timeout=WAIT_S)


@contextlib.asynccontextmanager
async def open_site(directory: Path) -> AsyncIterator[Site]:
    etcd = EtcdServer(directory / "etcd")
    await etcd.start()
    client = EtcdClient([etcd.endpoint])
    engine, router = SessionEngine(echo), DispatchRouter()
    try:
        await fill_registry(client)
        await engine.start()
        router.replicas["r1"] = engine.address
        await router.start()
        (directory / "edge").mkdir()
        async with RunningGateway(directory / "home", etcd.endpoint, router.address) as gateway:
            port = int(gateway.address.rpartition(":")[2])
            async with running_envoy(directory / "edge", port) as envoy:
                yield Site(f"http://127.0.0.1:{envoy.plain_port}", gateway, router, engine)
    finally:
        await client.close()
        await engine.kill()
        await router.kill()
        etcd.kill()


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with open_site(tmp_path) as site:
        yield site


def say_choice(attempt: PlayedAttempt) -> None:
    attempt.delta("say")
    attempt.delta(f" {attempt.start.choice}")
    attempt.finish()


async def test_openai_client_gets_answers_streams_and_models(site: Site) -> None:
    async with site.client() as client:
        whole = await client.chat.completions.create(model=NAME, messages=MESSAGES, extra_headers={"x-request-id": "req-42"})
        assert (whole.choices[0].message.content, whole.choices[0].finish_reason) == ("one two three", "stop")
        assert whole._request_id == "req-42"
        stream = await client.chat.completions.create(model=NAME, messages=MESSAGES, stream=True, stream_options={"include_usage": True})
        chunks = [chunk async for chunk in stream]
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "one two three"
        assert chunks[-1].usage == whole.usage
        assert [model.id async for model in await client.models.list()] == [NAME]
        assert (await client.models.retrieve(NAME)).id == NAME
    first, second = await site.gateway.records()
    assert (first.completion_id, second.completion_id) == (whole.id, chunks[0].id)
    assert first.request_id == "req-42"


async def test_openai_client_gets_choices_streamed_and_whole(site: Site) -> None:
    site.engine.play = say_choice
    async with site.client() as client:
        whole = await client.chat.completions.create(model=NAME, messages=MESSAGES, n=3)
        found = [(choice.index, choice.message.content, choice.finish_reason) for choice in whole.choices]
        assert found == [(0, "say 0", "stop"), (1, "say 1", "stop"), (2, "say 2", "stop")]
        stream = await client.chat.completions.create(
            model=NAME, messages=MESSAGES, n=3, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    said, roles, ends = dict[int, str](), dict[int, str | None](), dict[int, str | None]()
    for choice in (choice for chunk in chunks for choice in chunk.choices):
        said[choice.index] = said.get(choice.index, "") + (choice.delta.content or "")
        roles.setdefault(choice.index, choice.delta.role)
        ends[choice.index] = choice.finish_reason
    assert said == {0: "say 0", 1: "say 1", 2: "say 2"}
    assert set(roles.values()) == {"assistant"}
    assert set(ends.values()) == {"stop"}
    assert chunks[-1].usage == whole.usage
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 6
    for record in await site.gateway.records():
        assert (record.prompt_tokens, record.completion_tokens, record.num_attempts) == (whole.usage.prompt_tokens, 6, 3)


async def test_openai_client_gets_logprobs_streamed_and_whole(site: Site) -> None:
    async with site.client() as client:
        whole = await client.chat.completions.create(model=NAME, messages=MESSAGES, logprobs=True, top_logprobs=2)
        chunks = [
            chunk
            async for chunk in await client.chat.completions.create(
                model=NAME, messages=MESSAGES, logprobs=True, top_logprobs=2, stream=True
            )
        ]
        bare = await client.chat.completions.create(model=NAME, messages=MESSAGES, logprobs=True)
        none = await client.chat.completions.create(model=NAME, messages=MESSAGES)
    logprobs = whole.choices[0].logprobs
    assert logprobs is not None
    content = logprobs.content or []
    assert [(token.token, token.logprob, token.bytes) for token in content] == [
        (text, -0.5, list(text.encode())) for text in ("one", " two", " three")
    ]
    assert [[top.token for top in token.top_logprobs] for token in content] == [[text, "\ufffd"] for text in ("one", " two", " three")]
    pairs = [(choice.delta.content, choice.logprobs) for chunk in chunks for choice in chunk.choices]
    streamed = [token for _, found in pairs if found is not None for token in found.content or []]
    assert streamed == content
    for text, found in pairs:
        assert (text or "") == "".join(token.token for token in (found.content or [] if found is not None else []))
    assert [token.top_logprobs for token in (bare.choices[0].logprobs.content if bare.choices[0].logprobs else None) or []] == [[]] * 3
    assert none.choices[0].logprobs is None


async def test_openai_client_passes_the_extensions_to_the_engine(site: Site) -> None:
    extensions = {"top_k": 3, "min_p": 0.25, "repetition_penalty": 1.5, "min_tokens": 2, "stop_token_ids": [7]}
    flags = {"ignore_eos": True, "include_stop_str_in_output": True}
    async with site.client() as client:
        await client.chat.completions.create(
            model=NAME,
            messages=MESSAGES,
            frequency_penalty=0.5,
            presence_penalty=-0.5,
            logit_bias={"7": -100, "8": 2},
            extra_body={**extensions, **flags},
        )
    start = (await site.engine.next_attempt()).start
    sampling = start.sampling
    assert (sampling.top_k, sampling.min_p, sampling.repetition_penalty) == (3, 0.25, 1.5)
    assert (sampling.frequency_penalty, sampling.presence_penalty) == (0.5, -0.5)
    assert [(bias.token_id, bias.bias) for bias in sampling.logit_bias] == [(7, -100), (8, 2)]
    assert (start.min_output_tokens, list(start.stop_token_ids), start.ignore_eos, start.include_stop) == (2, [7], True, True)
    assert (start.HasField("num_logprobs"), start.HasField("num_prompt_logprobs"), start.choice) == (False, False, 0)


async def test_openai_client_raises_its_typed_errors(site: Site) -> None:
    async with site.client() as client:
        with pytest.raises(openai.BadRequestError) as bad:
            await client.chat.completions.create(model=NAME, messages=MESSAGES, temperature=3)
        assert (bad.value.param, bad.value.code) == ("temperature", "invalid_value")
        with pytest.raises(openai.BadRequestError) as unknown:
            await client.chat.completions.create(model=NAME, messages=MESSAGES, stream=True, extra_body={"max_tokns": 3})
        assert (unknown.value.param, unknown.value.code) == ("max_tokns", "unknown_parameter")
        with pytest.raises(openai.NotFoundError) as missing:
            await client.chat.completions.create(model="none", messages=MESSAGES)
        assert missing.value.code == "model_not_found"
        site.router.reject = "QUEUE_FULL"
        with pytest.raises(openai.RateLimitError) as full:
            await client.chat.completions.create(model=NAME, messages=MESSAGES, stream=True)
        assert (full.value.code, full.value.response.headers["retry-after"]) == ("queue_full", "2")
        site.router.reject = "NO_READY_REPLICA"
        with pytest.raises(openai.InternalServerError) as none_ready:
            await client.chat.completions.create(model=NAME, messages=MESSAGES)
        assert none_ready.value.status_code == 503
        with pytest.raises(openai.InternalServerError) as later:
            await client.embeddings.create(model=NAME, input="x")
        assert later.value.status_code == 501
    async with site.client("ifw-" + "w" * 43) as stranger:
        with pytest.raises(openai.AuthenticationError) as refused:
            await stranger.models.list()
        assert refused.value.code == "invalid_api_key"


async def test_openai_client_sees_a_broken_stream_as_an_error(site: Site) -> None:
    def play(attempt: PlayedAttempt) -> None:
        attempt.delta("so far")
        attempt.fail("STEP_FAILED", retryable=False)

    site.engine.play = play
    async with site.client() as client:
        stream = await client.chat.completions.create(model=NAME, messages=MESSAGES, stream=True)
        texts: list[str] = []
        with pytest.raises(openai.APIError) as broken:
            async for chunk in stream:
                texts.append(chunk.choices[0].delta.content or "")
        assert ("".join(texts), broken.value.code) == ("so far", "step_failed")


async def test_openai_client_that_hangs_up_stops_the_engine(site: Site) -> None:
    site.engine.play = None
    async with site.client() as client:
        asking = asyncio.create_task(client.chat.completions.create(model=NAME, messages=MESSAGES, stream=True))
        attempt = await site.engine.next_attempt()
        attempt.delta("x")
        stream = await asking
        assert (await anext(aiter(stream))).choices[0].delta.role == "assistant"
        await stream.close()
        async with asyncio.timeout(WAIT_S):
            await attempt.cancelled.wait()


async def test_body_of_five_megabytes_is_413_in_openai_shape(site: Site) -> None:
    body = json.dumps(request(messages=[{"role": "user", "content": "x" * 5_000_000}])).encode()
    async with httpx2.AsyncClient(timeout=WAIT_S) as client:
        headers = {"authorization": f"Bearer {SECRET}", "content-type": "application/json"}
        response = await client.post(f"{site.url}/v1/chat/completions", content=body, headers=headers)
    assert response.status_code == 413
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("headers", [[], ["x"], ["Bearer " + SECRET, "Bearer " + SECRET], [f"Bearer {SECRET}, Bearer {SECRET}"]], ids=len)
async def test_doubled_or_missing_credentials_are_401(site: Site, headers: list[str]) -> None:
    async with httpx2.AsyncClient(timeout=WAIT_S) as client:
        response = await client.get(f"{site.url}/v1/models", headers=[("authorization", value) for value in headers])
    assert response.status_code == 401
    assert response.json()["error"]["code"] == "invalid_api_key"
    assert SECRET not in response.text
