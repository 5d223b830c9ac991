"""The replica as the event loop sees it: accepts attempts, turns the step thread's tokens into text, ends attempts in one place."""

import asyncio
import enum
import itertools
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from services.engine.attempt import Attempt
from services.engine.attempts import AttemptRequest, AttemptRules, can_retry, duplicate
from services.engine.batch_load import BatchLoad
from services.engine.inbox import Inbox
from services.engine.kv_feed import KvFeed
from services.engine.load import LoadFeed, ReplicaLoad
from services.engine.observer import Observer
from services.engine.outcome import AttemptEnd, Failed
from services.engine.recorder import Recorder
from services.engine.reports import Reports, StepReport
from services.engine.sequence import Ended, EndReason, Sampled
from services.engine.session import Session
from services.engine.token_bytes import TokenBytes
from services.kit.clock import Clock
from services.kit.errors import InferwayError, Internal, ResourceExhausted, Unavailable

log = logging.getLogger(__name__)

RECORD_RETRY_S = 0.5
ABORT_TIMEOUT_S = 10.0
MESSAGES_PER_MS_BITS = 20
"""Numbers of cache messages begin at the start's time: a later start has higher ones, whatever number this one came to."""
_FAULTS = (EndReason.STEP_FAILED, EndReason.NON_FINITE_LOGITS)


class Phase(enum.Enum):
    """Whether the replica takes work."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """Sizes that the event loop has to know."""

    num_blocks: int
    max_num_sequences: int
    max_attempts: int
    """Most attempts that live at one time, those whose record is being written included."""
    message_gap_s: float = 0.0
    """Least time between two messages to one gateway."""


class Engine:
    """Owns all attempts from acceptance to the durable record of their end. Lives in the event loop; `run` must be running."""

    def __init__(
        self,
        rules: AttemptRules,
        limits: EngineLimits,
        vocabulary: TokenBytes,
        inbox: Inbox,
        reports: Reports,
        recorder: Recorder,
        observer: Observer,
        clock: Clock,
        heartbeat_age_s: Callable[[], float],
    ) -> None:
        self.phase = Phase.STARTING
        self.has_reports = asyncio.Event()
        """To be set, in the event loop, when there are reports to read."""
        self._rules = rules
        self._limits = limits
        self._vocabulary = vocabulary
        self._inbox = inbox
        self._reports = reports
        self._recorder = recorder
        self._observer = observer
        self._clock = clock
        self._heartbeat_age_s = heartbeat_age_s
        self._attempts: dict[int, Attempt] = {}
        self._sequence_ids = itertools.count(1)
        self._sessions: set[Session] = set()
        self._ending: deque[tuple[Attempt, AttemptEnd]] = deque()
        self._has_ending = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._step = 0
        self._batch_load = BatchLoad()
        self._num_output_tokens = 0
        self._num_prompt_tokens = 0
        self.loads = LoadFeed(self.load)
        self.kv_events = KvFeed(clock.unix_ms() << MESSAGES_PER_MS_BITS)

    @property
    def has_work(self) -> bool:
        """Whether any attempt lives."""
        return bool(self._attempts)

    def load(self) -> ReplicaLoad:
        """The load now. May be called from any thread."""
        return ReplicaLoad(
            batch=self._batch_load,
            num_starting=self._inbox.num_starts,
            num_blocks=self._limits.num_blocks,
            max_num_sequences=self._limits.max_num_sequences,
            heartbeat_age_s=self._heartbeat_age_s(),
            draining=self.phase is Phase.DRAINING,
            output_tokens_total=self._num_output_tokens,
            prompt_tokens_total=self._num_prompt_tokens,
        )

    def open_session(self, gateway_id: str) -> Session:
        """A session for one gateway's stream; give it back with `abort`."""
        session = Session(gateway_id, self._limits.max_attempts, self._limits.message_gap_s)
        self._sessions.add(session)
        return session

    def start(self, session: Session, request: AttemptRequest) -> None:
        """Accept an attempt, or tell its session why not. Never raises and never waits. A session that is over starts nothing."""
        if not session.is_open:
            return
        try:
            self._require_ready()
            self._recorder.require_room()
            self._accept(session, request)
        except InferwayError as error:
            self._observer.refused(error.reason)
            session.refuse(request.attempt_id, Failed(error.reason, error.message, can_retry(error)))

    def cancel(self, session: Session, attempt_id: str) -> None:
        """End an attempt of this session before the next step; an unknown id is ignored."""
        sequence_id = session.sequence_ids.get(attempt_id)
        if sequence_id is not None:
            self._inbox.stop(sequence_id, EndReason.CANCELLED)

    def abort(self, session: Session) -> None:
        """The session's stream is over: end all its attempts before the next step. A second call does nothing."""
        session.close()
        self._sessions.discard(session)
        for sequence_id in session.sequence_ids.values():
            self._inbox.stop(sequence_id, EndReason.CANCELLED)

    async def answer_probe(self) -> None:
        """Make one token through the step loop, as a request would; it is neither counted nor recorded. Internal when none came."""
        session = Session("", 1)
        request = AttemptRequest("probe", self._rules.model, [0], 1, ignore_eos=True)
        self._accept(session, request, is_probe=True)
        session.end_input()
        num_tokens = 0
        while (message := await session.next_message()) is not None:
            num_tokens += sum(len(update.token_ids) for update in message.updates)
        if num_tokens != 1:
            raise Internal("the model does not answer")

    async def run(self) -> None:
        """Serve until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._read_reports())
            tasks.create_task(self._record_ends())

    async def drain(self, timeout_s: float) -> int:
        """Take no more work; returns when all attempts have ended: by themselves, or after `timeout_s` with an error. Counts the latter."""
        self.phase = Phase.DRAINING
        self.loads.refresh()
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
                return 0
        except TimeoutError:
            late = list(self._attempts)
        for sequence_id in late:
            self._inbox.stop(sequence_id, EndReason.DRAINED)
        try:
            async with asyncio.timeout(ABORT_TIMEOUT_S):
                await self._idle.wait()
        except TimeoutError:
            log.error("attempts did not end", extra={"fields": {"num_attempts": len(self._attempts)}})
        return len(late)

    def close(self) -> None:
        """End all sessions and watches, after what waits in them was sent."""
        for session in self._sessions:
            session.close()
        self.loads.close()
        self.kv_events.close()

    def _require_ready(self) -> None:
        if self.phase is Phase.DRAINING:
            raise Unavailable("the replica is draining", reason="DRAINING")
        if self.phase is Phase.STARTING:
            raise Unavailable("the replica is starting", reason="NO_READY_REPLICA")

    def _accept(self, session: Session, request: AttemptRequest, is_probe: bool = False) -> None:
        self._rules.check(request)
        if request.attempt_id in session.sequence_ids:
            raise duplicate(request.attempt_id)
        attempt = Attempt(next(self._sequence_ids), request, session, self._vocabulary, self._clock, is_probe)
        text, complete = attempt.replay()
        if len(self._attempts) >= self._limits.max_attempts or (complete is None and not self._inbox.start(attempt.sequence())):
            raise ResourceExhausted("too many attempts live on this replica", reason="ENGINE_QUEUE_FULL")
        self._attempts[attempt.sequence_id] = attempt
        session.sequence_ids[request.attempt_id] = attempt.sequence_id
        self._idle.clear()
        self.loads.refresh()
        if text:
            session.add_delta(attempt.sequence_id, request.attempt_id, self._step, (), text)
        if complete is not None:
            self._finish(attempt, Ended(attempt.sequence_id, complete))

    async def _read_reports(self) -> None:
        while True:
            await self.has_reports.wait()
            self.has_reports.clear()
            for report in self._reports.take_all():
                self._take(report)
            self.loads.refresh()

    def _take(self, report: StepReport) -> None:
        self._step, self._batch_load = report.step, report.load
        now_s = self._clock.monotonic()
        for begun in report.begun:
            attempt = self._attempts[begun.sequence_id]
            if attempt.begun_s is None:  # A preempted sequence begins again.
                attempt.begun_s, attempt.num_cached = now_s - report.duration_s, begun.num_cached
        for given in report.events.prompt_logprobs:
            attempt = self._attempts[given.sequence_id]
            attempt.session.add_prompt_logprobs(attempt.sequence_id, attempt.request.attempt_id, self._step, given.logprobs)
        for sequence_id, sampled in itertools.groupby(report.events.sampled, lambda one: one.sequence_id):
            self._take_tokens(self._attempts[sequence_id], list(sampled), now_s)
        for ended in report.events.ended:
            self._finish(self._attempts[ended.sequence_id], ended)
        self.kv_events.take(report.events.kv)
        self._observer.step(report)

    def _take_tokens(self, attempt: Attempt, sampled: Sequence[Sampled], now_s: float) -> None:
        token_ids = [one.token_id for one in sampled]
        num_tokens, text = attempt.take(token_ids)
        if num_tokens == 0:
            return
        if not attempt.is_probe:
            self._count_prompt(attempt)
            self._num_output_tokens += num_tokens
            self._observer.tokens(attempt, num_tokens, now_s)
        logprobs = [one.logprobs for one in sampled[:num_tokens] if one.logprobs is not None]
        attempt.session.add_delta(attempt.sequence_id, attempt.request.attempt_id, self._step, token_ids[:num_tokens], text, logprobs)
        if attempt.first_token_s is None:
            attempt.first_token_s = now_s
            attempt.session.tell_cached(attempt.sequence_id, attempt.num_cached)
        attempt.last_token_s = now_s
        if attempt.is_stopped:
            self._inbox.stop(attempt.sequence_id, EndReason.STOP)

    def _finish(self, attempt: Attempt, ended: Ended) -> None:
        """The only way out for an attempt. It lives on until its record is durable."""
        if text := attempt.rest_of_text(ended.reason, ended.stop_token_id):
            attempt.session.add_delta(attempt.sequence_id, attempt.request.attempt_id, self._step, (), text)
        end = attempt.end(attempt.outcome(ended.reason, ended.num_discarded, ended.stop_token_id))
        if ended.reason in _FAULTS:  # The step loop's log names sequences only.
            fields = {"attempt": end.attempt_id, "request": end.request_id, "sequence": ended.sequence_id, "reason": ended.reason.value}
            log.warning("an attempt failed", extra={"fields": fields})
        if attempt.is_probe or ended.reason is EndReason.QUEUE_FULL:
            self._forget(attempt, end)
            return
        self._count_prompt(attempt)
        self._ending.append((attempt, end))
        self._has_ending.set()

    def _count_prompt(self, attempt: Attempt) -> None:
        if not attempt.is_counted:
            attempt.is_counted = True
            self._num_prompt_tokens += len(attempt.request.prompt_token_ids)

    async def _record_ends(self) -> None:
        while True:
            await self._has_ending.wait()
            self._has_ending.clear()
            batch = list(self._ending)
            self._ending.clear()
            await asyncio.gather(*(self._record(attempt, end) for attempt, end in batch))

    async def _record(self, attempt: Attempt, end: AttemptEnd) -> None:
        """The gateway hears of the end only when its record cannot be lost any more."""
        while True:
            try:
                await self._recorder.record(end)
                break
            except InferwayError as error:
                log.error("a record is not stored yet", extra={"fields": {"attempt": end.attempt_id, "reason": error.reason}})
                await asyncio.sleep(RECORD_RETRY_S)
        self._observer.ended(attempt, end, self._clock.monotonic())
        self._forget(attempt, end)

    def _forget(self, attempt: Attempt, end: AttemptEnd) -> None:
        del self._attempts[attempt.sequence_id]
        attempt.session.add_end(attempt.sequence_id, end.attempt_id, end.outcome)
        if not self._attempts:
            self._idle.set()
