"""The event loop's side of a replica, with reports made by hand instead of a step thread."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from services.engine.attempt import Attempt
from services.engine.attempts import AttemptRequest, AttemptRules
from services.engine.batch_load import BatchLoad
from services.engine.engine import Engine, EngineLimits, Phase
from services.engine.inbox import Inbox
from services.engine.load import MAX_GAP_S
from services.engine.outcome import AttemptEnd, Failed, Finished
from services.engine.plan import Begun, StepEvents
from services.engine.reports import Reports, StepReport
from services.engine.sequence import Ended, EndReason, Sampled
from services.engine.session import Session
from services.engine.token_bytes import TokenBytes
from services.kit.clock import SystemClock
from services.kit.errors import ResourceExhausted, Unavailable
from tests.harness.eventually import eventually

VOCABULARY = TokenBytes([bytes([byte]) for byte in range(256)])


class MemoryRecorder:
    """Records that can be held up."""

    def __init__(self) -> None:
        self.ends: list[AttemptEnd] = []
        self.is_full = False
        self.num_faults = 0
        self.tried = asyncio.Event()

    def require_room(self) -> None:
        if self.is_full:
            raise ResourceExhausted("full", reason="OUTBOX_FULL")

    async def record(self, end: AttemptEnd) -> None:
        self.tried.set()
        if self.num_faults:
            self.num_faults -= 1
            raise Unavailable("disk")
        self.ends.append(end)


class Witness:
    """Keeps the attempts that ended, and how many tokens came at a time."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self.num_tokens: list[int] = []

    def step(self, report: StepReport) -> None: ...

    def tokens(self, attempt: Attempt, num_tokens: int, now_s: float) -> None:
        self.num_tokens.append(num_tokens)

    def refused(self, reason: str) -> None: ...

    def ended(self, attempt: Attempt, end: AttemptEnd, now_s: float) -> None:
        self.attempts.append(attempt)


class Desk:
    """An engine, and the hands of a step thread."""

    def __init__(self) -> None:
        self.inbox = Inbox(4)
        self.reports = Reports(100, lambda: self.engine.has_reports.set())
        self.recorder = MemoryRecorder()
        self.witness = Witness()
        self.engine = Engine(
            AttemptRules("m", 256, 64),
            EngineLimits(num_blocks=8, max_num_sequences=2, max_attempts=6),
            VOCABULARY,
            self.inbox,
            self.reports,
            self.recorder,
            self.witness,
            SystemClock(),
            lambda: 0.0,
        )
        self.engine.phase = Phase.READY
        self.session = self.engine.open_session("g")
        self.step = 0

    def start(self, attempt_id: str = "a", **fields: object) -> int:
        """Start an attempt; returns its sequence id, 0 when it was not handed over."""
        request = AttemptRequest(attempt_id, "m", [1, 2], 10, **fields)  # type: ignore[arg-type]
        self.engine.start(self.session, request)
        starts = self.inbox.take(0).starts
        return starts[0].sequence_id if starts else 0

    def report(self, sequence_id: int, text: bytes = b"", end: EndReason | None = None, num_discarded: int = 0) -> None:
        """Tokens of a sequence and its end."""
        self.step += 1
        ended = [] if end is None else [Ended(sequence_id, end, num_discarded)]
        self.reports.put(StepReport(self.step, StepEvents([Sampled(sequence_id, byte) for byte in text], ended)))

    async def heard(self) -> tuple[str, list[int], Finished | Failed | None]:
        """Everything of one attempt up to its end."""
        text, token_ids = "", []
        async with asyncio.timeout(5):
            while (message := await self.session.next_message()) is not None:
                (update,) = message.updates
                text += "".join(update.texts)
                token_ids += update.token_ids
                if update.end is not None:
                    return text, token_ids, update.end
        return text, token_ids, None


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    desk = Desk()
    running = asyncio.ensure_future(desk.engine.run())
    yield desk
    running.cancel()
    await asyncio.wait({running})


async def test_tokens_past_a_stop_string_are_discarded_and_the_end_waits_for_the_step_thread(desk: Desk) -> None:
    sequence_id = desk.start(stop=["END"])
    desk.report(sequence_id, b"abENDx")
    message = await desk.session.next_message()
    assert message is not None
    (update,) = message.updates
    assert (bytes(update.token_ids), update.texts, update.end) == (b"abEND", ["ab"], None)
    assert desk.inbox.take(0).stops == {sequence_id: EndReason.STOP}
    desk.report(sequence_id, b"y", EndReason.STOP, num_discarded=4)
    text, token_ids, end = await desk.heard()
    assert isinstance(end, Finished)
    assert (text, token_ids, end.matched_stop) == ("", [], "END")
    assert (end.counts.output_tokens, end.counts.discarded_tokens) == (5, 2 + 4)


async def test_tokens_of_one_step_are_counted_and_told_together(desk: Desk) -> None:
    first, second = desk.start("a"), desk.start("b")
    sampled = [Sampled(first, ord("x")), Sampled(second, 0xC3), Sampled(second, 0xA9), Sampled(second, ord("!"))]
    desk.reports.put(StepReport(1, StepEvents(sampled)))
    message = await desk.session.next_message()
    assert message is not None
    assert [(update.attempt_id, update.token_ids, update.texts) for update in message.updates] == [
        ("a", [ord("x")], ["x"]),
        ("b", [0xC3, 0xA9, ord("!")], ["\u00e9!"]),
    ]
    assert desk.witness.num_tokens == [1, 3]
    assert desk.engine.load().output_tokens_total == 4


async def test_times_of_an_attempt_are_those_of_its_first_begin_and_its_first_token(desk: Desk) -> None:
    sequence_id = desk.start()
    desk.reports.put(StepReport(1, begun=[Begun(sequence_id, 2)], duration_s=5.0))
    desk.report(sequence_id, b"a")
    await desk.session.next_message()
    desk.reports.put(StepReport(3, begun=[Begun(sequence_id, 2)]))
    desk.report(sequence_id, b"b", EndReason.LENGTH)
    await desk.heard()
    (attempt,) = desk.witness.attempts
    assert attempt.begun_s is not None and attempt.first_token_s is not None and attempt.last_token_s is not None
    assert attempt.begun_s < attempt.started_s  # The step took five seconds that this test did not.
    assert attempt.started_s <= attempt.first_token_s < attempt.last_token_s


async def test_cached_prompt_tokens_of_the_first_admission_are_told_with_the_first_token_and_counted(desk: Desk) -> None:
    sequence_id = desk.start()
    desk.reports.put(StepReport(1, begun=[Begun(sequence_id, 2)]))
    told = []
    for token in (b"a", b"b"):
        desk.report(sequence_id, token)
        message = await desk.session.next_message()
        assert message is not None
        told.append(message.updates[0].num_cached)
        desk.reports.put(StepReport(2, begun=[Begun(sequence_id, 1)]))
    assert told == [2, 0]
    desk.report(sequence_id, b"", EndReason.LENGTH)
    _, _, end = await desk.heard()
    assert end.counts.cached_prompt_tokens == 2


@pytest.mark.parametrize("reason", [EndReason.LENGTH, EndReason.CANCELLED, EndReason.DEADLINE, EndReason.STEP_FAILED, EndReason.DRAINED])
async def test_stop_string_that_is_complete_wins_over_any_other_end(desk: Desk, reason: EndReason) -> None:
    sequence_id = desk.start(stop=["END"])
    desk.report(sequence_id, b"aEND", reason)
    _, _, end = await desk.heard()
    assert isinstance(end, Finished)
    assert end.reason is EndReason.STOP


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (EndReason.LENGTH, "aEN"),
        (EndReason.STOP, "aEN"),
        (EndReason.CANCELLED, "aEN"),
        (EndReason.STEP_FAILED, "a"),
        (EndReason.DRAINED, "a"),
    ],
)
async def test_text_held_back_is_told_at_the_end_unless_another_attempt_may_go_on(desk: Desk, reason: EndReason, text: str) -> None:
    sequence_id = desk.start(stop=["END"])
    desk.report(sequence_id, b"aEN", reason)
    assert (await desk.heard())[0] == text


async def test_end_is_told_only_after_the_record_is_stored(desk: Desk) -> None:
    desk.recorder.num_faults = 1
    sequence_id = desk.start()
    desk.report(sequence_id, b"a", EndReason.LENGTH)
    await desk.recorder.tried.wait()
    assert desk.engine.has_work
    _, _, end = await desk.heard()
    assert end is not None
    assert [recorded.outcome for recorded in desk.recorder.ends] == [end]
    assert not desk.engine.has_work


async def test_refusal_by_the_waiting_room_leaves_no_record(desk: Desk) -> None:
    sequence_id = desk.start()
    desk.report(sequence_id, b"", EndReason.QUEUE_FULL)
    _, _, end = await desk.heard()
    assert isinstance(end, Failed)
    assert (end.reason, end.can_retry, desk.recorder.ends) == ("ENGINE_QUEUE_FULL", True, [])
    assert desk.engine.load().prompt_tokens_total == 0


async def test_outbox_without_room_refuses_new_work(desk: Desk) -> None:
    desk.recorder.is_full = True
    assert desk.start() == 0
    _, _, end = await desk.heard()
    assert isinstance(end, Failed)
    assert (end.reason, end.can_retry) == ("OUTBOX_FULL", True)


@pytest.mark.parametrize(("phase", "reason"), [(Phase.STARTING, "NO_READY_REPLICA"), (Phase.DRAINING, "DRAINING")])
async def test_replica_that_is_not_ready_refuses(desk: Desk, phase: Phase, reason: str) -> None:
    desk.engine.phase = phase
    assert desk.start() == 0
    _, _, end = await desk.heard()
    assert isinstance(end, Failed)
    assert (end.reason, end.can_retry) == (reason, True)


async def test_start_on_a_session_that_is_over_leaves_no_ghost(desk: Desk) -> None:
    first = desk.start("a")
    desk.engine.abort(desk.session)
    assert desk.inbox.take(0).stops == {first: EndReason.CANCELLED}
    assert desk.start("b") == 0
    desk.report(first, b"", EndReason.CANCELLED)
    assert await desk.engine.drain(5) == 0
    assert [recorded.attempt_id for recorded in desk.recorder.ends] == ["a"]


async def test_step_thread_that_takes_nothing_more_means_a_refusal(desk: Desk) -> None:
    for index in range(4):
        desk.engine.start(desk.session, AttemptRequest(f"a{index}", "m", [1], 1))
    desk.engine.start(desk.session, AttemptRequest("b", "m", [1], 1))
    message = await desk.session.next_message()
    assert message is not None
    assert [(update.attempt_id, update.end.reason) for update in message.updates if isinstance(update.end, Failed)] == [
        ("b", "ENGINE_QUEUE_FULL")
    ]


async def test_probe_that_gets_no_token_is_an_error(desk: Desk) -> None:
    probing = asyncio.ensure_future(desk.engine.answer_probe())
    await eventually(lambda: desk.inbox.num_starts == 1)
    desk.report(desk.inbox.take(0).starts[0].sequence_id, b"", EndReason.NON_FINITE_LOGITS)
    with pytest.raises(Exception, match="does not answer"):
        await probing


@pytest.mark.parametrize("change", ["an attempt waits", "the replica drains", "a waiting attempt is taken in"])
async def test_load_is_told_on_a_change_when_no_step_runs(desk: Desk, change: str) -> None:
    watch = desk.engine.loads.watch()
    before = await anext(watch)
    following = asyncio.ensure_future(anext(watch))
    match change:
        case "an attempt waits":
            desk.engine.start(desk.session, AttemptRequest("a", "m", [1], 1))
        case "the replica drains":
            await desk.engine.drain(0)
        case _:
            desk.reports.put(StepReport(0, load=BatchLoad(num_running=1)))
    async with asyncio.timeout(MAX_GAP_S * 0.9):
        after = await following
    assert (before.num_waiting, before.batch.num_running, before.draining) == (0, 0, False)
    assert [after.num_waiting == 1, after.draining, after.batch.num_running == 1].count(True) == 1
    await watch.aclose()


async def test_close_ends_sessions_and_load_watches(desk: Desk) -> None:
    watch = desk.engine.loads.watch()
    assert (await anext(watch)).num_blocks == 8
    desk.engine.close()
    assert [load async for load in watch] == []
    assert await desk.session.next_message() is None
    assert isinstance(desk.session, Session)
