"""Stand-ins for what the gateway's request lifecycle depends on: clock, router, engines, outbox; each implements its Protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from services.gateway.attempt import Attempt, AttemptFeed, Delta, EndReason, Failed, Finished
from services.gateway.charge import Charge
from services.gateway.dispatch import Grant, GrantOutcome, Want
from services.gateway.records import SealedRequest
from services.kit.errors import InferwayError


class FakeClock:
    """A Clock that the test moves."""

    def __init__(self, unix_ms: int = 1_700_000_000_000) -> None:
        self._unix_ms = unix_ms
        self._monotonic = 0.0

    def monotonic(self) -> float:
        return self._monotonic

    def unix_ms(self) -> int:
        return self._unix_ms

    def advance(self, seconds: float) -> None:
        """Time passes."""
        self._monotonic += seconds
        self._unix_ms += round(seconds * 1000)


@dataclass
class FakeDispatcher:
    """A Dispatcher that grants the replicas r1, r2, ... in turn, or does what the next of `answers` says: an error, or "wait" for ever."""

    answers: list[InferwayError | str] = field(default_factory=list)
    wants: list[Want] = field(default_factory=list)
    held: set[str] = field(default_factory=set)
    first_tokens: list[str] = field(default_factory=list)
    dones: list[tuple[str, GrantOutcome]] = field(default_factory=list)
    waiting: asyncio.Event = field(default_factory=asyncio.Event)

    async def admit(self, want: Want) -> Grant:
        self.wants.append(want)
        number = len(self.wants)
        await asyncio.sleep(0)
        answer = self.answers.pop(0) if self.answers else ""
        if isinstance(answer, InferwayError):
            raise answer
        if answer == "wait":
            self.waiting.set()
            await asyncio.Event().wait()
        self.held.add(want.want_id)
        return Grant(want.want_id, f"r{number}", f"10.0.0.{number}:1", want.model_version, 0)

    def first_token(self, want_id: str) -> None:
        assert want_id in self.held
        self.first_tokens.append(want_id)

    def done(self, want_id: str, outcome: GrantOutcome) -> None:
        self.held.discard(want_id)
        self.dones.append((want_id, outcome))


class FakeAttempt:
    """One attempt on a fake replica: the script says things, the pipeline hears them."""

    def __init__(self, attempt: Attempt, on_cancel: Callable[[FakeAttempt], None]) -> None:
        self.attempt = attempt
        self.cancelled = asyncio.Event()
        self.num_said = 0
        self._on_cancel = on_cancel
        self.feed = AttemptFeed(attempt.attempt_id, self._cancel)

    def say(self, text: str, num_tokens: int = 1, cached: int = 0) -> None:
        """New tokens, numbered by position from 100, so that a resumed answer can be checked."""
        first = 100 + len(self.attempt.delivered_token_ids) + self.num_said
        self.num_said += num_tokens
        self.feed.push(Delta(tuple(range(first, first + num_tokens)), text, cached))

    def finish(self, reason: EndReason = EndReason.STOP, output_tokens: int | None = None, cached: int = 0) -> None:
        """The end as the engine counts it."""
        self.feed.end(Finished(reason, self.num_said if output_tokens is None else output_tokens, cached))

    def fail(self, reason: str = "STEP_FAILED", *, retryable: bool = False, lost: bool = False) -> None:
        """A refusal, a failure, or a lost replica."""
        self.feed.end(Failed(reason, "the fake replica says no", retryable=retryable or lost, lost=lost))

    def _cancel(self, attempt_id: str) -> None:
        assert attempt_id == self.attempt.attempt_id
        self.cancelled.set()
        self._on_cancel(self)


Script = Callable[[FakeAttempt], None]


def stop_at_cancel(attempt: FakeAttempt) -> None:
    """What an engine does when it is asked to stop."""
    attempt.finish(EndReason.CANCELLED)


@dataclass
class FakeReplicas:
    """Replicas whose n-th attempt is played by the n-th script; without one the test plays it, found in `started`."""

    scripts: list[Script] = field(default_factory=list)
    on_cancel: Script = stop_at_cancel
    attempts: list[FakeAttempt] = field(default_factory=list)
    started: asyncio.Queue[FakeAttempt] = field(default_factory=asyncio.Queue)

    def start(self, grant: Grant, attempt: Attempt) -> AttemptFeed:
        fake = FakeAttempt(attempt, lambda cancelled: self.on_cancel(cancelled))
        self.attempts.append(fake)
        self.started.put_nowait(fake)
        if self.scripts:
            self.scripts.pop(0)(fake)
        return fake.feed


@dataclass
class MemoryRecords:
    """A RecordSink in memory. `full` has no room for new requests; `broken` loses what is appended, loudly."""

    records: list[SealedRequest] = field(default_factory=list)
    full: InferwayError | None = None
    broken: InferwayError | None = None
    gate: asyncio.Event | None = None
    num_begun: int = 0

    def require_room(self) -> None:
        if self.full is not None:
            raise self.full

    async def append(self, record: SealedRequest) -> None:
        self.num_begun += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.broken is not None:
            raise self.broken
        self.records.append(record)


@dataclass
class CountingMeter:
    """A Meter that remembers."""

    refusals: list[str] = field(default_factory=list)
    settled_charges: list[Charge] = field(default_factory=list)

    def refused(self, surface: str, error: InferwayError) -> None:
        self.refusals.append(error.reason)

    def settled(self, charge: Charge, duration_s: float) -> None:
        self.settled_charges.append(charge)
