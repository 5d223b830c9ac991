"""The way of an answer from the pipeline to the client: accepted, pieces of its choices, an end; coalescing when the client is slow."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from services.gateway.logprobs import TokenLogprobs
from services.gateway.request import GenerationRequest
from services.kit.errors import InferwayError, Internal

MAX_POSITIONS_AT_ONCE = 512
"""Positions with log-probabilities after which `take` leaves the rest for the next time: with 20 likeliest tokens 20 ms of work."""


@dataclass(frozen=True, slots=True)
class Echo:
    """A prompt that is part of the answer: its text, and the bytes of its first token."""

    text: str
    first_token: bytes


@dataclass(frozen=True, slots=True)
class Accepted:
    """The request has its first token; only now may a response header be sent. `echo` is there when the request asks for it."""

    completion_id: str
    model: str
    model_version: str
    created_unix_s: int
    request: GenerationRequest
    echo: Echo | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """What is billed, in tokens; `cached_prompt_tokens` is part of `prompt_tokens`."""

    prompt_tokens: int
    cached_prompt_tokens: int
    completion_tokens: int


@dataclass(slots=True)  # Not frozen: made for every chunk, and that would cost a microsecond.
class Piece:
    """Something new of one choice: text, and the log-probabilities that belong to it; those of the prompt come before all text."""

    index: int
    text: str
    logprobs: tuple[TokenLogprobs, ...] = ()
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()

    @property
    def num_positions(self) -> int:
        """Positions with log-probabilities."""
        return len(self.logprobs) + len(self.prompt_logprobs)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to tell."""
        return not (self.text or self.logprobs or self.prompt_logprobs)


@dataclass(frozen=True, slots=True)
class Ending:
    """A good end: per choice "stop", "length" or "cancelled", and what is billed for all of them."""

    finish_reasons: tuple[str, ...]
    usage: Usage


class Answer:
    """One answer. The pipeline writes and closes, one reader reads; the reader may cancel, which is also what its going away means."""

    def __init__(self) -> None:
        self._accepted: Accepted | None = None
        self._unread: dict[int, list[Piece]] = {}
        self._ending: Ending | None = None
        self._error: InferwayError | None = None
        self._closed = False
        self._wants_whole = False
        self._waiter: asyncio.Future[None] | None = None
        self._on_cancel: Callable[[], None] | None = None
        self.cancelled = False

    # The pipeline's side.

    def accept(self, accepted: Accepted) -> None:
        """The first token is there."""
        self._accepted = accepted
        self._wake()

    def push(self, piece: Piece) -> None:
        """More of a choice; joins what the reader has not taken yet."""
        if piece.is_empty:
            return
        self._unread.setdefault(piece.index, []).append(piece)
        if not self._wants_whole:
            self._wake()

    def finish(self, ending: Ending) -> None:
        """The good end; the reader sees it when the answer is closed."""
        self._ending = ending

    def close(self, error: InferwayError | None) -> None:
        """Nothing follows; `error` is raised at the reader after everything was read."""
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

    async def pieces(self) -> AsyncIterator[list[Piece]]:
        """What is new, as it comes, at most one piece per choice; raises the error that ended the answer."""
        while self._unread or not self._closed:
            if self._unread:
                yield self.take()
            else:
                await self._change()
        if self._error is not None:
            raise self._error

    async def whole(self) -> tuple[Piece, ...]:
        """Waits for the end: every choice in one piece, by index; raises the error that ended the answer."""
        self._wants_whole = True
        while not self._closed:
            await self._change()
        if self._error is not None:
            raise self._error
        found = {piece.index: piece for piece in self.take(math.inf)}
        return tuple(found.get(index) or Piece(index, "") for index in range(len(self.ending.finish_reasons)))

    def take(self, max_positions: float = MAX_POSITIONS_AT_ONCE) -> list[Piece]:
        """What nobody has read yet, one piece per choice, by index; empty when there is nothing.

        Only the first of it, when there are more than `max_positions` log-probabilities; a piece as it was pushed comes whole.
        """
        taken, room = [], max_positions
        for index in sorted(self._unread):
            if room <= 0:
                break
            pieces = self._unread.pop(index)
            count = 0
            while count < len(pieces) and room > 0:
                room -= pieces[count].num_positions
                count += 1
            if count < len(pieces):
                self._unread[index] = pieces[count:]
            taken.append(_joined(pieces[:count]))
        return taken

    @property
    def ending(self) -> Ending:
        """The good end, after everything was read."""
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


def _joined(pieces: list[Piece]) -> Piece:
    """Consecutive pieces of one choice as one."""
    if len(pieces) == 1:
        return pieces[0]
    logprobs = tuple(entry for piece in pieces for entry in piece.logprobs)
    prompt_logprobs = tuple(entry for piece in pieces for entry in piece.prompt_logprobs)
    return Piece(pieces[0].index, "".join(piece.text for piece in pieces), logprobs, prompt_logprobs)
