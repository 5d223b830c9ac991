"""A REST client of the mesh in plain HTTP, for what the official client would not send, or hides."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx2 as httpx

from tests.harness.mesh import MODEL, Mesh

Headers = Mapping[str, str] | Mapping[bytes, bytes]
CHAT = "/v1/chat/completions"
HELLO = ({"role": "user", "content": "Say hello."},)


class Rest:
    """One connection pool to the plain listener."""

    def __init__(self, mesh: Mesh, key: str | None = None) -> None:
        headers = {"authorization": f"Bearer {key or mesh.key}", "content-type": "application/json"}
        self.http = httpx.AsyncClient(base_url=mesh.base_url, headers=headers, timeout=60)

    async def __aenter__(self) -> Rest:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.aclose()

    async def send(self, body: bytes, headers: Headers | None = None) -> httpx.Response:
        """Posts these bytes as a chat request."""
        return await self.http.post(CHAT, content=body, headers=headers)

    async def chat(self, headers: Headers | None = None, **fields: Any) -> httpx.Response:
        """A chat request of few tokens; `fields` are added or replaced."""
        return await self.send(json.dumps(request(**fields)).encode(), headers)

    async def answer(self, **fields: Any) -> dict[str, Any]:
        """The document of a chat request that has to succeed."""
        response = await self.chat(**fields)
        assert response.status_code == 200, response.text
        document: dict[str, Any] = response.json()
        return document

    async def chunks(self, **fields: Any) -> list[dict[str, Any]]:
        """The chunks of a stream that has to end with [DONE], once and last."""
        events = [event async for event in self.events(**fields)]
        assert events.index("[DONE]") == len(events) - 1
        return [json.loads(event) for event in events[:-1]]

    async def events(self, **fields: Any) -> AsyncIterator[str]:
        """The data of a stream's events, as they arrive; every one is whole UTF-8."""
        async with self.http.stream("POST", CHAT, json=request(stream=True, **fields)) as response:
            assert response.headers["content-type"] == "text/event-stream", await response.aread()
            pending = b""
            async for piece in response.aiter_raw():
                *events, pending = (pending + piece).split(b"\n\n")
                for event in events:
                    yield event.decode().removeprefix("data: ")
            assert pending == b""


def request(**fields: Any) -> dict[str, Any]:
    """The body of a chat request."""
    return {"model": MODEL, "messages": HELLO, "max_tokens": 4, "temperature": 0, **fields}


def said(chunks: list[dict[str, Any]]) -> str:
    """The text of a stream."""
    return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])


def said_by_choice(chunks: list[dict[str, Any]]) -> list[str]:
    """The text of every choice of a stream, by index."""
    found: dict[int, str] = {}
    for choice in (choice for chunk in chunks for choice in chunk["choices"]):
        found[choice["index"]] = found.get(choice["index"], "") + (choice["delta"].get("content") or "")
    return [found[index] for index in sorted(found)]


def billed(usage: dict[str, Any]) -> tuple[int, int]:
    """Prompt and output tokens; how many of the prompt's were cached depends on what was asked before."""
    return usage["prompt_tokens"], usage["completion_tokens"]


def error_of(response: httpx.Response, status: int) -> dict[str, Any]:
    """The error of a refusal, after checking its shape."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    (name, error), *others = response.json().items()
    assert (name, others) == ("error", [])
    assert set(error) == {"message", "type", "param", "code"} and error["message"]
    found: dict[str, Any] = error
    return found
