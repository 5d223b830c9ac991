"""What one gateway has yet to hear: everything that happened to its attempts since its last message, merged per attempt."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from services.engine.outcome import Failed, Finished
from services.engine.runner import TokenLogprobs

MAX_LOGPROBS_PER_MESSAGE = 100_000
"""Log-probabilities of single tokens in one message, about 3 MB; what is more waits for the next one."""
MAX_TOKENS_PER_MESSAGE = 500_000
"""Likewise of tokens, about 4 MB with their text; those of one attempt stay together."""


@dataclass(slots=True)
class AttemptUpdate:
    """What happened to one attempt since the last message; the delta comes before the end."""

    attempt_id: str
    token_ids: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    end: Finished | Failed | None = None
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    """Of `token_ids`, one each, when the attempt asked for them."""
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list)
    num_cached: int = 0
    """Prompt tokens read from the prefix cache, when the first token is in it."""

    @property
    def has_delta(self) -> bool:
        """Whether there are tokens, text or log-probabilities to tell."""
        return bool(self.token_ids or self.texts or self.prompt_logprobs)

    @property
    def num_logprobs(self) -> int:
        """Log-probabilities of single tokens in it."""
        return _count(self.logprobs) + _count(self.prompt_logprobs) if self.logprobs or self.prompt_logprobs else 0

    def split(self, max_logprobs: int) -> "AttemptUpdate":
        """Cut the first positions off, as many as fit; text and end stay with the rest."""
        head = AttemptUpdate(self.attempt_id, num_cached=self.num_cached)
        head.prompt_logprobs = _fitting(self.prompt_logprobs, max_logprobs)
        if len(head.prompt_logprobs) == len(self.prompt_logprobs):
            head.logprobs = _fitting(self.logprobs, max_logprobs - _count(head.prompt_logprobs))
        head.token_ids = self.token_ids[: len(head.logprobs)]
        del self.prompt_logprobs[: len(head.prompt_logprobs)], self.logprobs[: len(head.logprobs)], self.token_ids[: len(head.logprobs)]
        return head


def _count(logprobs: Sequence[TokenLogprobs]) -> int:
    return sum(1 + len(position.top) for position in logprobs)


def _fitting(logprobs: list[TokenLogprobs], max_logprobs: int) -> list[TokenLogprobs]:
    fitting = 0
    for position in logprobs:
        max_logprobs -= 1 + len(position.top)
        if max_logprobs < 0:
            break
        fitting += 1
    return logprobs[:fitting]


@dataclass(slots=True)
class SessionMessage:
    """All updates of one gateway up to one step."""

    step: int
    updates: list[AttemptUpdate]


class Session:
    """The outgoing side of one gateway's stream. Lives in the event loop; writers never wait.

    Whoever sends takes messages at its own pace: a gateway that reads slowly gets fewer and larger ones. What waits is bounded by the
    output of the attempts that live, and by `max_ended`: `wait_room` keeps the reader of requests from starting more while so many wait.
    A message leaves with the first news that come `min_gap_s` after the last one, and takes along what came before them, so that steps of
    a few milliseconds do not cost a message each in every process on the way to the client. Without such news it leaves after twice that
    time; the first token of an attempt, and an end, leave at once.
    """

    def __init__(self, gateway_id: str, max_ended: int, min_gap_s: float = 0.0) -> None:
        self.gateway_id = gateway_id
        self.sequence_ids: dict[str, int] = {}
        """Sequences of running attempts by attempt id."""
        self._max_ended = max_ended
        self._updates: dict[int, AttemptUpdate] = {}
        self._num_ended = 0
        self._step = 0
        self._refusals = 0
        self._input_open = True
        self._open = True
        self._error: Exception | None = None
        self._changed = asyncio.Event()
        self._begun: set[int] = set()
        """Sequences that live and whose first token was told."""
        self._min_gap_s = min_gap_s
        self._next_s = 0.0
        """When the gap is over, in the loop's time."""
        self._is_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._room = asyncio.Event()
        self._room.set()

    @property
    def is_open(self) -> bool:
        """False once the stream has ended; what is added then is dropped."""
        return self._open

    def add_delta(
        self, sequence_id: int, attempt_id: str, step: int, token_ids: Sequence[int], text: str, logprobs: Sequence[TokenLogprobs] = ()
    ) -> None:
        """More tokens (with their log-probabilities, one each, if they were asked for), more text, or both."""
        if not self._open:
            return
        update = self._updates.get(sequence_id) or self._updates.setdefault(sequence_id, AttemptUpdate(attempt_id))
        update.token_ids += token_ids
        update.logprobs += logprobs
        if text:
            update.texts.append(text)
        self._step = step
        self._tell(at_once=sequence_id not in self._begun)
        self._begun.add(sequence_id)

    def add_prompt_logprobs(self, sequence_id: int, attempt_id: str, step: int, logprobs: Sequence[TokenLogprobs]) -> None:
        """Log-probabilities of the next prompt tokens."""
        if self._open and logprobs:
            self._updates.setdefault(sequence_id, AttemptUpdate(attempt_id)).prompt_logprobs += logprobs
            self._step = step
            self._tell(at_once=False)

    def tell_cached(self, sequence_id: int, num_cached: int) -> None:
        """How many prompt tokens were read from the prefix cache; goes with the delta that waits."""
        if sequence_id in self._updates:
            self._updates[sequence_id].num_cached = num_cached

    def add_end(self, sequence_id: int, attempt_id: str, end: Finished | Failed) -> None:
        """The attempt has ended; its id may be used again."""
        self.sequence_ids.pop(attempt_id, None)
        self._begun.discard(sequence_id)
        if self._open:
            self._updates.setdefault(sequence_id, AttemptUpdate(attempt_id)).end = end
            self._count_end()

    def refuse(self, attempt_id: str, failed: Failed) -> None:
        """An attempt was not accepted; a running one of the same id is not touched."""
        if self._open:
            self._refusals += 1
            self._updates[-self._refusals] = AttemptUpdate(attempt_id, end=failed)
            self._count_end()

    def end_input(self) -> None:
        """The gateway starts nothing more: the session ends when its running attempts have."""
        self._input_open = False
        self._changed.set()

    def close(self, error: Exception | None = None) -> None:
        """The stream is over. What waits is still sent unless the stream is broken; `error` is raised after it."""
        self._open, self._error = False, self._error or error
        self._changed.set()
        self._room.set()

    async def wait_room(self) -> None:
        """Wait until fewer than `max_ended` ends wait to be sent."""
        await self._room.wait()

    async def next_message(self) -> SessionMessage | None:
        """What happened since the last message, as soon as it may leave; None at the end of the session."""
        while not self._updates or (self._open and not self._is_due):
            if not self._updates:
                if self._error is not None:
                    raise self._error
                if not self._open or (not self._input_open and not self.sequence_ids):
                    return None
            self._changed.clear()
            await self._changed.wait()
        message = SessionMessage(self._step, self._take())
        self._begin_gap()
        if self._num_ended < self._max_ended:
            self._room.set()
        return message

    def _take(self) -> list[AttemptUpdate]:
        """Everything that waits, or as much of it as has place in one message."""
        taken: list[AttemptUpdate] = []
        room, num_tokens = MAX_LOGPROBS_PER_MESSAGE, 0
        for sequence_id, update in list(self._updates.items()):
            num_tokens += len(update.token_ids)
            if taken and num_tokens > MAX_TOKENS_PER_MESSAGE:
                break
            num_logprobs = update.num_logprobs
            if num_logprobs > room:
                taken.append(update.split(room))
                break
            room -= num_logprobs
            taken.append(self._updates.pop(sequence_id))
            self._num_ended -= update.end is not None
        return taken

    def _count_end(self) -> None:
        self._num_ended += 1
        if self._num_ended >= self._max_ended:
            self._room.clear()
        self._tell(at_once=True)

    def _tell(self, at_once: bool) -> None:
        """Something waits: let it leave now, or with what comes after the gap; a timer is for the case that nothing comes."""
        if self._is_due:
            return
        loop = asyncio.get_running_loop()
        if at_once or loop.time() >= self._next_s:
            self._leave()
        elif self._timer is None:
            self._timer = loop.call_at(self._next_s + self._min_gap_s, self._leave)

    def _leave(self) -> None:
        self._is_due = True
        self._changed.set()

    def _begin_gap(self) -> None:
        self._is_due = bool(self._updates)
        self._next_s = asyncio.get_running_loop().time() + self._min_gap_s
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
