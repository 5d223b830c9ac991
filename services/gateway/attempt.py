"""One attempt of one replica to make (the rest of) an answer, and the feed on which its output arrives."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from services.gateway.dispatch import Grant
from services.gateway.logprobs import TokenLogprobs
from services.gateway.request import SamplingParams


@dataclass(frozen=True, slots=True)
class Attempt:
    """What the engine has to know; see StartAttempt in engine.proto.

    Limits on output tokens and positions include the delivered tokens; texts are measured in UTF-8 bytes.
    """

    attempt_id: str
    request_id: str
    charge_id: str
    tenant_id: str
    model: str
    prompt_token_ids: tuple[int, ...]
    delivered_token_ids: tuple[int, ...]
    delivered_text_bytes: int
    sampling: SamplingParams
    max_output_tokens: int
    stop: tuple[str, ...]
    cache_salt: bytes
    deadline_unix_ms: int
    choice: int = 0
    min_output_tokens: int = 0
    stop_token_ids: tuple[int, ...] = ()
    include_stop: bool = False
    ignore_eos: bool = False
    num_logprobs: int | None = None
    num_prompt_logprobs: int | None = None


class EndReason(Enum):
    """Why an engine ended an attempt."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    DEADLINE = "deadline"


@dataclass(slots=True)  # Not frozen: made for every chunk, and that would cost a microsecond.
class Delta:
    """New tokens and the text that became certain; `cached_prompt_tokens` counts in the first delta of an attempt only.

    `logprobs` has one entry per token when they were asked for; `prompt_logprobs` go on with the prompt, from its second token.
    """

    token_ids: tuple[int, ...]
    text: str
    cached_prompt_tokens: int = 0
    logprobs: tuple[TokenLogprobs, ...] = ()
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    """The attempt ended; `output_tokens` are those it made that are billed."""

    reason: EndReason
    output_tokens: int
    cached_prompt_tokens: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The attempt was refused, failed, or was lost with its replica. `retryable` means that another replica may do it."""

    reason: str
    message: str
    retryable: bool
    lost: bool = False


End = Finished | Failed


class AttemptFeed:
    """Output of one attempt, from the link to the pipeline. Deltas that nobody has read come as one: it never outgrows the answer."""

    def __init__(self, attempt_id: str, cancel: Callable[[str], None]) -> None:
        self.attempt_id = attempt_id
        self._cancel = cancel
        self._unread: list[Delta] = []
        self._end: End | None = None
        self._waiter: asyncio.Future[None] | None = None

    def push(self, delta: Delta) -> None:
        """New output; ignored after the end."""
        if self._end is None:
            self._unread.append(delta)
            self._wake()

    def end(self, end: End) -> None:
        """Nothing follows; the first end counts."""
        if self._end is None:
            self._end = end
            self._wake()

    async def next(self) -> Delta | End:
        """What arrived since the last call, or the end, again and again, once everything was read. One reader only."""
        while not self._unread and self._end is None:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        if not self._unread:
            assert self._end is not None
            return self._end
        unread, self._unread = self._unread, []
        return unread[0] if len(unread) == 1 else _joined(unread)

    def cancel(self) -> None:
        """Asks the engine to stop; the feed goes on until its end arrives."""
        if self._end is None:
            self._cancel(self.attempt_id)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _joined(deltas: list[Delta]) -> Delta:
    """Consecutive deltas of one attempt as one."""
    return Delta(
        tuple(token_id for delta in deltas for token_id in delta.token_ids),
        "".join(delta.text for delta in deltas),
        max(delta.cached_prompt_tokens for delta in deltas),
        tuple(entry for delta in deltas for entry in delta.logprobs),
        tuple(entry for delta in deltas for entry in delta.prompt_logprobs),
    )


class Replicas(Protocol):
    """The engines, or what stands for them."""

    def start(self, grant: Grant, attempt: Attempt) -> AttemptFeed:
        """Starts the attempt on the granted replica. Never raises: a replica that cannot be reached ends the feed with `lost`."""
