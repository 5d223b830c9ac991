"""The way of one answer from the pipeline to the client: accepted, texts, then an end; coalescing when the client is slow."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from services.gateway.request import GenerationRequest
from services.kit.errors import InferwayError, Internal


@dataclass(frozen=True, slots=True)
class Accepted:
    """The request has its first token; only now may a response header be sent."""

    completion_id: str
    model: str
    model_version: str
    created_unix_s: int
    request: GenerationRequest


@dataclass(frozen=True, slots=True)
class Usage:
    """What is billed, in tokens; `cached_prompt_tokens` is part of `prompt_tokens`."""

    prompt_tokens: int
    cached_prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class Ending:
    """A good end: "stop", "length" or "cancelled", and what is billed."""

    finish_reason: str
    usage: Usage


class Answer:
    """One answer. The pipeline writes and closes, one reader reads; the reader may cancel, which is also what its going away means."""

    def __init__(self) -> None:
        self._accepted: Accepted | None = None
        self._texts: list[str] = []
        self._ending: Ending | None = None
        self._error: InferwayError | None = None
        self._closed = False
        self._waiter: asyncio.Future[None] | None = None
        self._on_cancel: Callable[[], None] | None = None
        self.cancelled = False

    # The pipeline's side.

    def accept(self, accepted: Accepted) -> None:
        """The first token is there."""
        self._accepted = accepted
        self._wake()

    def push(self, text: str) -> None:
        """More text; joins what the reader has not taken yet."""
        if text:
            self._texts.append(text)
            self._wake()

    def finish(self, ending: Ending) -> None:
        """The good end; the reader sees it when the answer is closed."""
        self._ending = ending

    def close(self, error: InferwayError | None) -> None:
        """Nothing follows; `error` is raised at the reader after all text was read."""
        self._error, self._closed = error, True
        self._wake()

    def on_cancel(self, callback: Callable[[], None] | None) -> None:
        """Calls back, at once if need be, when the reader cancels; None takes the callback away."""
        self._on_cancel = callback
        if callback is not None and self.cancelled:
            callback()

    # The reader's side.

    async def accepted(self) -> Accepted:
        """Waits for the first token; raises the refusal when there will be none."""
        while self._accepted is None:
            if self._closed:
                raise self._error or Internal("the answer ended before it was accepted")
            await self._change()
        return self._accepted

    async def texts(self) -> AsyncIterator[str]:
        """Text as it comes, several deltas at once when the reader is slow; raises the error that ended the answer."""
        while self._texts or not self._closed:
            if text := self.take_text():
                yield text
            else:
                await self._change()
        if self._error is not None:
            raise self._error

    def take_text(self) -> str:
        """The text that nobody has read yet; "" when there is none."""
        text = "".join(self._texts)
        self._texts.clear()
        return text

    @property
    def ending(self) -> Ending:
        """The good end, after all texts were read."""
        assert self._ending is not None
        return self._ending

    def cancel(self) -> None:
        """The reader wants no more. Without effect after the end."""
        if not self.cancelled:
            self.cancelled = True
            if self._on_cancel is not None:
                self._on_cancel()

    async def _change(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
