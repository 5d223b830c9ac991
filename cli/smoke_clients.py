"""The clients of the smoke test: the official OpenAI client, streaming and not, and a gRPC client, all through Envoy."""

import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Protocol

import grpc

from cli.smoke_answer import Answer, Failure, Surface, Usage
from inferway.edge.v1 import inference_pb2, inference_pb2_grpc

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from openai.types import CompletionUsage

DEADLINE_S = 120.0


class Client(Protocol):
    """Makes one request and says how it ended; never raises for a failed request."""

    surface: Surface

    async def ask(self, model: str, question: str, max_tokens: int) -> Answer | Failure: ...


class RestClient:
    """Chat completions over REST, in one piece or as a stream."""

    def __init__(self, client: "AsyncOpenAI", *, stream: bool) -> None:
        self._client = client
        self._stream = stream
        self.surface = Surface.REST_STREAM if stream else Surface.REST

    async def ask(self, model: str, question: str, max_tokens: int) -> Answer | Failure:
        """See Client."""
        import openai

        try:
            return await (self._streamed if self._stream else self._whole)(model, question, max_tokens)
        except openai.APIStatusError as error:
            return Failure(self.surface, f"HTTP {error.status_code}: {error.message}")
        except openai.APIError as error:
            return Failure(self.surface, f"{type(error).__name__}: {error.message}")

    async def _whole(self, model: str, question: str, max_tokens: int) -> Answer | Failure:
        answer = await self._client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": question}], max_completion_tokens=max_tokens
        )
        if answer.usage is None or not answer.choices[0].finish_reason:
            return Failure(self.surface, "the answer has no usage or no finish reason")
        return Answer(self.surface, answer.id, answer.model, answer.choices[0].finish_reason, _usage(answer.usage), None)

    async def _streamed(self, model: str, question: str, max_tokens: int) -> Answer | Failure:
        begun, ttft_s = time.monotonic(), None
        completion_id, finish_reason, usage = "", "", None
        stream = await self._client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": question}],
            max_completion_tokens=max_tokens,
            stream=True,
            stream_options={"include_usage": True},
        )
        async for chunk in stream:
            completion_id, usage = chunk.id, chunk.usage or usage
            for choice in chunk.choices:
                if choice.delta.content and ttft_s is None:
                    ttft_s = time.monotonic() - begun
                finish_reason = choice.finish_reason or finish_reason
        if usage is None or not finish_reason:
            return Failure(self.surface, "the stream ended without finish reason or usage")
        return Answer(self.surface, completion_id, model, finish_reason, _usage(usage), ttft_s)


class GrpcClient:
    """Inference.Generate over gRPC."""

    surface = Surface.GRPC

    def __init__(self, connection: grpc.aio.Channel, key: str) -> None:
        self._stub: Any = inference_pb2_grpc.InferenceStub(connection)
        self._metadata = (("authorization", f"Bearer {key}"),)

    async def ask(self, model: str, question: str, max_tokens: int) -> Answer | Failure:
        """See Client."""
        start = inference_pb2.GenerateStart(
            model=model, messages=[inference_pb2.ChatMessage(role="user", content=question)], max_completion_tokens=max_tokens
        )
        try:
            return await self._generate(start)
        except grpc.aio.AioRpcError as error:
            return Failure(self.surface, f"{error.code().name}: {error.details()}")

    async def _generate(self, start: inference_pb2.GenerateStart) -> Answer | Failure:
        begun, ttft_s = time.monotonic(), None
        accepted = inference_pb2.GenerateAccepted()
        finish_reason, usage = "", None
        call: AsyncIterator[inference_pb2.GenerateResponse] = self._stub.Generate(_only(start), timeout=DEADLINE_S, metadata=self._metadata)
        async for message in call:
            match message.WhichOneof("event"):
                case "accepted":
                    accepted = message.accepted
                case "delta" if message.delta.text and ttft_s is None:
                    ttft_s = time.monotonic() - begun
                case "finished":
                    finish_reason = message.finished.finish_reason
                case "usage":
                    usage = message.usage
        if usage is None or not finish_reason:
            return Failure(self.surface, "the stream ended without finish reason or usage")
        told = Usage(usage.prompt_tokens, usage.completion_tokens, usage.cached_prompt_tokens)
        return Answer(self.surface, accepted.completion_id, accepted.model, finish_reason, told, ttft_s)


async def _only(start: inference_pb2.GenerateStart) -> AsyncIterator[inference_pb2.GenerateRequest]:
    yield inference_pb2.GenerateRequest(start=start)


def _usage(usage: "CompletionUsage") -> Usage:
    details = usage.prompt_tokens_details
    return Usage(usage.prompt_tokens, usage.completion_tokens, (details.cached_tokens or 0) if details else 0)
