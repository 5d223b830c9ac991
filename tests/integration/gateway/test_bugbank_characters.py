"""Characters split over tokens, through a real gateway, router and engine: one text on every surface, and never half a character."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from inferway.edge.v1 import inference_pb2
from services.kit.etcd import EtcdClient
from services.router.config import RouterConfig
from tests.harness.engine import EngineUnderTest, running_engine
from tests.harness.etcd import EtcdServer
from tests.harness.gateway_service import SECRET, WAIT_S, RunningGateway, collect, credentials, events, fill_registry, request
from tests.harness.router_service import RunningRouter
from tests.harness.tiny_model import NAME, byte_token, write_tiny_model

pytestmark = pytest.mark.real

TEXTS = {
    "emoji of four bytes": "\U0001f600\U0001f680 \U0001f4a9",
    "joined emoji": "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 and \U0001f3f3\ufe0f\u200d\U0001f308",
    "Chinese, Japanese, Korean": "\u4f60\u597d\u3001\u4e16\u754c \u3053\u3093\u306b\u3061\u306f \uc548\ub155",
    "combining marks": "e\u0301a\u0308 \u0928\u093f Z\u0351\u036b\u0343",
    "mixed": "a\u00e9\u20ac\U0001f600z",
}
LONE_BYTE = 0xF0
CONTEXT = 4096
NAUGHTY = json.loads((Path(__file__).parents[2] / "data" / "blns" / "blns.json").read_text(encoding="utf-8"))


@dataclass
class Chain:
    """A gateway before one replica whose answers the test writes."""

    gateway: RunningGateway
    engine: EngineUnderTest

    def write(self, answer: bytes) -> None:
        """What every answer says from now on, a token per byte, over and over."""
        self.engine.gate.script = [byte_token(byte) for byte in answer]

    async def whole(self, max_tokens: int, prompt: str = "hello") -> str:
        document = json.loads(await collect(self.gateway.chat(asking(prompt, max_tokens))))
        return str(document["choices"][0]["message"]["content"])

    async def streamed(self, max_tokens: int, prompt: str = "hello") -> list[str]:
        chunks = events(await collect(self.gateway.chat(asking(prompt, max_tokens, stream=True))))
        return [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks[:-1]]

    async def generated(self, max_tokens: int, prompt: str = "hello") -> list[str]:
        messages = [inference_pb2.ChatMessage(role="user", content=prompt)]
        start = inference_pb2.GenerateStart(model=NAME, messages=messages, max_completion_tokens=max_tokens)
        call: Any = self.gateway.inference.Generate(
            iter([inference_pb2.GenerateRequest(start=start)]), metadata=credentials(SECRET), timeout=WAIT_S
        )
        return [response.delta.text async for response in call]


def asking(prompt: str, max_tokens: int, **fields: Any) -> dict[str, Any]:
    return request(messages=[{"role": "user", "content": prompt}], max_tokens=max_tokens, **fields)


@pytest.fixture
async def chain(tmp_path: Path) -> AsyncIterator[Chain]:
    async with contextlib.AsyncExitStack() as stack:
        etcd = EtcdServer(tmp_path / "etcd")
        await etcd.start()
        stack.callback(etcd.kill)
        client = EtcdClient([etcd.endpoint])
        stack.push_async_callback(client.close)
        await fill_registry(client)
        router = RunningRouter(RouterConfig(etcd_endpoints=(etcd.endpoint,), drain_timeout_s=1.0))
        address = await router.start()
        stack.push_async_callback(router.stop)
        write_tiny_model(tmp_path / "home", max_context_tokens=CONTEXT)
        settings = {"replica_id": "tiny-0", "etcd_endpoints": (etcd.endpoint,), "num_blocks": CONTEXT // 4}
        engine, _ = await stack.enter_async_context(running_engine(tmp_path / "home", **settings))
        await router.until(lambda view: any(replica.connected for replica in view.snapshot(NAME).replicas))
        yield Chain(await stack.enter_async_context(RunningGateway(tmp_path / "home", etcd.endpoint, address)), engine)


@pytest.mark.parametrize("name", TEXTS)
async def test_en_04_characters_split_over_tokens_arrive_whole_on_every_surface(chain: Chain, name: str) -> None:
    text = TEXTS[name]
    chain.write(text.encode())
    num_bytes = len(text.encode())
    assert await chain.whole(num_bytes) == text
    for pieces in (await chain.streamed(num_bytes), await chain.generated(num_bytes)):
        assert "".join(pieces) == text
        assert not any("\ufffd" in piece for piece in pieces)


async def test_en_04_an_answer_cut_in_mid_character_ends_alike_on_every_surface(chain: Chain) -> None:
    """What there is of the last character is left out."""
    text = TEXTS["mixed"]
    chain.write(text.encode())
    for num_bytes in range(1, len(text.encode()) + 1):
        cut = text.encode()[:num_bytes].decode(errors="ignore")
        whole = await chain.whole(num_bytes)
        streamed, generated = await chain.streamed(num_bytes), await chain.generated(num_bytes)
        assert whole == cut
        assert "".join(streamed) == "".join(generated) == whole


async def test_en_04_bytes_that_are_no_character_harm_nothing_around_them(chain: Chain) -> None:
    answer = b"ab" + bytes([LONE_BYTE]) + "c\u00e9d".encode()
    chain.write(answer)
    whole = await chain.whole(len(answer))
    assert whole == answer.decode(errors="replace")
    assert "".join(await chain.streamed(len(answer))) == "".join(await chain.generated(len(answer))) == whole


@pytest.mark.timeout(120)
async def test_en_04_every_naughty_string_comes_back_as_it_went_on_every_surface(chain: Chain) -> None:
    for text in filter(None, NAUGHTY):
        chain.write(text.encode())
        num_bytes = len(text.encode())
        asked = (chain.whole(num_bytes, text), chain.streamed(num_bytes, text), chain.generated(num_bytes, text))
        assert ["".join(told) for told in await asyncio.gather(*asked)] == [text] * 3
