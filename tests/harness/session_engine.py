"""An engine whose attempts are played by the test: it shows each StartAttempt and says what it is told to say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import grpc

from inferway.engine.v1 import engine_pb2, engine_pb2_grpc
from tests.harness.ports import free_port

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"

WAIT_S = 10.0


@dataclass
class PlayedAttempt:
    """One attempt that a gateway started. Tokens are made up: what counts is how many and which text."""

    start: engine_pb2.StartAttempt
    cancelled: asyncio.Event
    _say: Callable[[engine_pb2.AttemptEvent], None]
    _num_said: int = 0

    def delta(self, text: str, num_tokens: int = 1, cached_prompt_tokens: int = 0) -> None:
        """Says new text, made of `num_tokens` tokens; where log-probabilities are asked for, the first token has all of the text."""
        first = len(self.start.delivered_token_ids) + self._num_said
        self._num_said += num_tokens
        token_ids = range(first + 100, first + 100 + num_tokens)
        logprobs = []
        if self.start.HasField("num_logprobs"):
            texts = [text.encode(), *[b""] * (num_tokens - 1)]
            logprobs = [self._logprobs(token_id, token) for token_id, token in zip(token_ids, texts, strict=False)]
        delta = engine_pb2.AttemptDelta(token_ids=token_ids, text=text, cached_prompt_tokens=cached_prompt_tokens, logprobs=logprobs)
        self._say(engine_pb2.AttemptEvent(attempt_id=self.start.attempt_id, delta=delta))

    def _logprobs(self, token_id: int, token: bytes) -> engine_pb2.TokenLogprobs:
        """The token itself is the likeliest; the others are made up."""
        chosen = engine_pb2.TokenLogprob(token_id=token_id, token=token, logprob=-0.5)
        others = [engine_pb2.TokenLogprob(token_id=rank, token=b"\xe2\x82", logprob=-rank) for rank in range(1, self.start.num_logprobs)]
        return engine_pb2.TokenLogprobs(chosen=chosen, top=[chosen, *others][: self.start.num_logprobs])

    def finish(self, reason: engine_pb2.FinishReason = engine_pb2.FINISH_REASON_STOP, output_tokens: int | None = None) -> None:
        """Ends the attempt; it has made `output_tokens`, or what it said."""
        counts = engine_pb2.AttemptCounts(
            prompt_tokens=len(self.start.prompt_token_ids),
            output_tokens=self._num_said if output_tokens is None else output_tokens,
            resumed_tokens=len(self.start.delivered_token_ids),
        )
        finished = engine_pb2.AttemptFinished(reason=reason, counts=counts)
        self._say(engine_pb2.AttemptEvent(attempt_id=self.start.attempt_id, finished=finished))

    def fail(self, reason: str, *, retryable: bool) -> None:
        """Refuses or fails the attempt."""
        failed = engine_pb2.AttemptFailed(reason=reason, message="the scripted engine says no", retryable=retryable)
        self._say(engine_pb2.AttemptEvent(attempt_id=self.start.attempt_id, failed=failed))


Play = Callable[[PlayedAttempt], None]


def echo(attempt: PlayedAttempt) -> None:
    """Says "one two three" in three tokens and stops; the usual play."""
    for text in ("one", " two", " three")[len(attempt.start.delivered_token_ids) :]:
        attempt.delta(text)
    attempt.finish()


class SessionEngine(engine_pb2_grpc.EngineServicer):
    """One replica on a loopback port. `play`, when there is one, plays every attempt at its start; `started` shows them to the test."""

    def __init__(self, play: Play | None = None) -> None:
        self.play = play
        self.started: asyncio.Queue[PlayedAttempt] = asyncio.Queue()
        self.num_sessions = 0
        self.closed_sessions = 0
        self._attempts: dict[str, PlayedAttempt] = {}
        self._port = free_port()
        self._server: grpc.aio.Server | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    async def start(self) -> None:
        """Listens, on the same port each time."""
        self._server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        engine_pb2_grpc.add_EngineServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"127.0.0.1:{self._port}")
        await self._server.start()

    async def kill(self) -> None:
        """Every connection ends now, without a word."""
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop(0)

    async def next_attempt(self) -> PlayedAttempt:
        """The next attempt that a gateway starts."""
        async with asyncio.timeout(WAIT_S):
            return await self.started.get()

    async def Session(
        self, request_iterator: AsyncIterator[engine_pb2.SessionRequest], context: Context
    ) -> AsyncIterator[engine_pb2.SessionResponse]:
        """See engine.proto."""
        self.num_sessions += 1
        said: asyncio.Queue[engine_pb2.AttemptEvent | None] = asyncio.Queue()
        listener = asyncio.ensure_future(self._listen(request_iterator, said))
        try:
            while (event := await said.get()) is not None:
                yield engine_pb2.SessionResponse(step=1, events=[event])
        finally:
            listener.cancel()
            self.closed_sessions += 1

    async def _listen(
        self, requests: AsyncIterator[engine_pb2.SessionRequest], said: asyncio.Queue[engine_pb2.AttemptEvent | None]
    ) -> None:
        async for request in requests:
            if request.HasField("start"):
                attempt = PlayedAttempt(request.start, asyncio.Event(), said.put_nowait)
                self._attempts[request.start.attempt_id] = attempt
                self.started.put_nowait(attempt)
                if self.play is not None:
                    self.play(attempt)
            elif request.HasField("cancel") and (found := self._attempts.get(request.cancel.attempt_id)) is not None:
                found.cancelled.set()
        said.put_nowait(None)
