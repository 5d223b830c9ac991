"""Clients that keep asking while something is broken, and that remember word for word what they were told."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import grpc
import openai

from inferway.edge.v1 import inference_pb2, inference_pb2_grpc
from services.kit.channel import connect
from tests.harness.mesh import MODEL, Mesh

DEADLINE_S = 60.0
MAX_TOKENS = 40
PROMPTS = tuple(f"Tell me story number {number}." for number in range(6))


@dataclass(frozen=True)
class Told:
    """What one client got: the whole answer with its usage, or the text until the failure and its reason."""

    surface: str
    prompt: str
    completion_id: str = ""
    text: str = ""
    prompt_tokens: int = -1
    completion_tokens: int = -1
    failure: str = ""


@dataclass
class Traffic:
    """Workers on all three surfaces that ask again and again until they are told to stop."""

    mesh: Mesh
    told: list[Told] = field(default_factory=list)
    running: int = 0
    _stop: bool = False
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    async def run(self, num_workers: int) -> None:
        """Returns when every worker has its last answer."""
        async with Clients(self.mesh) as clients, asyncio.TaskGroup() as group:
            for ask in itertools.islice(itertools.cycle(clients.surfaces), num_workers):
                group.create_task(self._worker(ask))

    def stop(self) -> None:
        """No new requests."""
        self._stop = True

    def answered(self) -> int:
        """Requests that ended well."""
        return sum(not one.failure for one in self.told)

    async def _worker(self, ask: Callable[[str], asyncio.Future[Told]]) -> None:
        while not self._stop:
            self.running += 1
            self.told.append(await ask(PROMPTS[next(self._numbers) % len(PROMPTS)]))
            self.running -= 1


class Clients:
    """One official OpenAI client and one gRPC channel to the edge."""

    def __init__(self, mesh: Mesh, key: str | None = None) -> None:
        self._key = key or mesh.key
        self.openai = openai.AsyncOpenAI(base_url=f"{mesh.base_url}/v1", api_key=self._key, max_retries=0, timeout=DEADLINE_S)
        self.channel = connect(f"127.0.0.1:{mesh.ports.edge_http}")
        self.surfaces = (self.ask_stream, self.ask_whole, self.ask_grpc)

    async def __aenter__(self) -> Clients:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.openai.close()
        await self.channel.close()

    async def ask_stream(self, prompt: str, max_tokens: int = MAX_TOKENS, begun: asyncio.Event | None = None) -> Told:
        """REST, streamed; `begun` is set when there is text."""
        text, completion_id, usage = "", "", None
        try:
            stream = await self.openai.chat.completions.create(
                model=MODEL,
                messages=[{"role": "user", "content": prompt}],
                max_tokens=max_tokens,
                temperature=0,
                stream=True,
                stream_options={"include_usage": True},
            )
            async for chunk in stream:
                completion_id, usage = chunk.id, chunk.usage or usage
                text += "".join(choice.delta.content or "" for choice in chunk.choices)
                if text and begun is not None:
                    begun.set()
        except openai.APIError as error:
            return Told("rest-stream", prompt, completion_id, text, failure=f"{type(error).__name__}: {error.message}")
        if usage is None:
            return Told("rest-stream", prompt, completion_id, text, failure="silently short: no usage and no error")
        return Told("rest-stream", prompt, completion_id, text, usage.prompt_tokens, usage.completion_tokens)

    async def ask_whole(self, prompt: str, max_tokens: int = MAX_TOKENS) -> Told:
        """REST, in one piece."""
        try:
            answer = await self.openai.chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": prompt}], max_tokens=max_tokens, temperature=0
            )
        except openai.APIError as error:
            return Told("rest", prompt, failure=f"{type(error).__name__}: {error.message}")
        assert answer.usage is not None
        text = answer.choices[0].message.content or ""
        return Told("rest", prompt, answer.id, text, answer.usage.prompt_tokens, answer.usage.completion_tokens)

    async def ask_grpc(self, prompt: str, max_tokens: int = MAX_TOKENS) -> Told:
        """gRPC, streamed."""
        text, completion_id, usage = "", "", None
        try:
            async for message in self.generate(prompt, max_tokens):
                completion_id = message.accepted.completion_id or completion_id
                text += message.delta.text
                usage = message.usage if message.HasField("usage") else usage
        except grpc.aio.AioRpcError as error:
            return Told("grpc", prompt, completion_id, text, failure=f"{error.code().name}: {error.details()}")
        if usage is None:
            return Told("grpc", prompt, completion_id, text, failure="silently short: no usage and no error")
        return Told("grpc", prompt, completion_id, text, usage.prompt_tokens, usage.completion_tokens)

    def generate(self, prompt: str, max_tokens: int, num_choices: int = 1) -> AsyncIterator[inference_pb2.GenerateResponse]:
        """The raw call."""
        start = inference_pb2.GenerateStart(
            model=MODEL,
            messages=[inference_pb2.ChatMessage(role="user", content=prompt)],
            sampling=inference_pb2.Sampling(temperature=0, n=num_choices),
            max_completion_tokens=max_tokens,
        )
        requests = iter([inference_pb2.GenerateRequest(start=start)])
        metadata = (("authorization", f"Bearer {self._key}"),)
        stub = inference_pb2_grpc.InferenceStub(self.channel)
        return stub.Generate(requests, timeout=DEADLINE_S, metadata=metadata)  # type: ignore[no-any-return]
