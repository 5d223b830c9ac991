"""Makes the choices of an answer, each in as many attempts as it takes: a lost replica's work goes on elsewhere, where its text ended."""

import asyncio
from dataclasses import dataclass

from services.gateway.answer import Answer
from services.gateway.attempt import AttemptFeed, Delta, End, EndReason, Failed, Finished, Replicas
from services.gateway.charge import Charge
from services.gateway.choice import Choice
from services.gateway.dispatch import Dispatcher, Grant, GrantOutcome
from services.gateway.failures import attempt_error
from services.kit import tracing
from services.kit.clock import Clock
from services.kit.errors import DeadlineExceeded, InferwayError


@dataclass(frozen=True, slots=True)
class GenerationLimits:
    """How often a request is tried, and how long a cancelled one waits for the engine's count."""

    max_num_attempts: int = 3
    cancel_timeout_s: float = 2.0


class Generation:
    """Runs the attempts of requests; holds no state of any of them."""

    def __init__(self, dispatcher: Dispatcher, replicas: Replicas, clock: Clock, limits: GenerationLimits) -> None:
        self._dispatcher = dispatcher
        self._replicas = replicas
        self._clock = clock
        self._limits = limits

    async def run(self, charge: Charge, answer: Answer) -> None:
        """Fills the answer and ends the charge, all choices at the same time.

        Raises the typed error of a request that cannot be (further) served: the first that a choice met, once the others are stopped too.
        When cancelled it stops the engines, waits a bounded time for their counts and enters those into the charge. Every grant is given
        back.
        """
        began = self._clock.monotonic()
        try:
            async with asyncio.TaskGroup() as tasks:
                for choice in charge.choices:
                    tasks.create_task(self._choose(charge, choice, answer, began))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        charge.end()

    async def _choose(self, charge: Charge, choice: Choice, answer: Answer, began: float) -> None:
        """Makes one choice, in as many attempts as it takes."""
        excluded: tuple[str, ...] = ()
        failure: Failed | None = None
        while True:
            grant = await self._admit(charge, choice, excluded, failure)
            end = await self._attempt(charge, choice, grant, answer, began)
            if isinstance(end, Finished):
                break
            failure = end
            excluded += (grant.replica_id,)
            if not failure.retryable or choice.num_attempts >= self._limits.max_num_attempts:
                raise attempt_error(failure)
        if end.reason is EndReason.DEADLINE:
            raise DeadlineExceeded("the deadline passed while the answer was made")
        choice.end(end.reason)

    async def _admit(self, charge: Charge, choice: Choice, excluded: tuple[str, ...], failure: Failed | None) -> Grant:
        """A replica for the next attempt. With output delivered, what interrupted it is the news, not that nobody can go on."""
        try:
            with tracing.span("queue wait"):
                return await self._dispatcher.admit(charge.next_want(choice, excluded))
        except InferwayError as error:
            if failure is not None and choice.token_ids:
                raise attempt_error(failure) from error
            raise

    async def _attempt(self, charge: Charge, choice: Choice, grant: Grant, answer: Answer, began: float) -> End:
        """One attempt; the grant is given back on every path."""
        outcome = GrantOutcome.CANCELLED
        try:
            with tracing.span("attempt", {"inferway.replica": grant.replica_id}) as span:
                feed = self._replicas.start(grant, charge.attempt(choice))
                relay = _Relay(charge, choice, answer, feed, began)
                try:
                    end = await self._relay(relay, grant)
                except asyncio.CancelledError:
                    await self._stop(relay, grant)
                    raise
                if isinstance(end, Failed):
                    span.fail(attempt_error(end).code, end.reason)
            outcome = _outcome(end)
            return end
        finally:
            self._dispatcher.done(grant.want_id, outcome)

    async def _relay(self, relay: "_Relay", grant: Grant) -> End:
        """Passes output on until the attempt ends."""
        with tracing.span("first token"):
            event = await relay.feed.next()
        if isinstance(event, Delta):
            with tracing.span("decode"):
                return await self._pass_on(event, relay, grant)
        return relay.conclude(event, self._clock)

    async def _pass_on(self, event: Delta | End, relay: "_Relay", grant: Grant) -> End:
        """Passes on the event and all that follow."""
        while isinstance(event, Delta):
            if relay.take(event, self._clock):
                self._dispatcher.first_token(grant.want_id)
            event = await relay.feed.next()
        return relay.conclude(event, self._clock)

    async def _stop(self, relay: "_Relay", grant: Grant) -> None:
        """Cancels at the engine and takes what it made until then; without an answer in time, what was received is what counts."""
        relay.feed.cancel()
        relay.stopping = True
        try:
            async with asyncio.timeout(self._limits.cancel_timeout_s):
                await self._pass_on(await relay.feed.next(), relay, grant)
        except TimeoutError:
            return


@dataclass(slots=True)
class _Relay:
    """One attempt's output on its way into charge and answer."""

    charge: Charge
    choice: Choice
    answer: Answer
    feed: AttemptFeed
    began: float
    stopping: bool = False
    _first: bool = True

    def take(self, delta: Delta, clock: Clock) -> bool:
        """Enters the delta; True when it holds the attempt's first token."""
        piece = self.choice.add(delta)
        self._accept(clock)
        self.answer.push(piece)
        first, self._first = self._first, False
        return first

    def conclude(self, end: End, clock: Clock) -> End:
        """Enters the end. An engine that cancels by itself has lost the attempt as far as the client is concerned."""
        if isinstance(end, Failed):
            return end
        if end.reason is EndReason.CANCELLED and not self.stopping:
            return Failed("REPLICA_LOST", "the replica gave the request up", retryable=True)
        self.choice.count(end)
        if end.reason in (EndReason.STOP, EndReason.LENGTH):
            self._accept(clock)
        self.answer.push(self.choice.rest())
        return end

    def _accept(self, clock: Clock) -> None:
        if self.charge.ttft_s is None:
            self.charge.ttft_s = clock.monotonic() - self.began
            self.answer.accept(self.charge.accepted())


def _outcome(end: End) -> GrantOutcome:
    if isinstance(end, Finished):
        return GrantOutcome.CANCELLED if end.reason is EndReason.CANCELLED else GrantOutcome.FINISHED
    return GrantOutcome.REPLICA_LOST if end.lost else GrantOutcome.FAILED
