"""Parts for tests of the router's domain: a clock to move, an alarm to look at, replicas and wants with defaults."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from services.router.admission import Admission, AdmissionLimits
from services.router.config import RouterConfig
from services.router.gateway_stream import GatewayStream
from services.router.grants import GrantLedger
from services.router.replica_view import ReplicaView
from services.router.snapshot import Load, ReplicaFacts, ReplicaSnapshot, ReplicaState
from services.router.want import Answer, Granted, Rejected, Want

MODEL = "m"
UNIX_MS = 1_700_000_000_000


@dataclass
class MovableClock:
    """A clock that stands still until a test moves it."""

    now: float = 1000.0

    def monotonic(self) -> float:
        return self.now

    def unix_ms(self) -> int:
        return UNIX_MS + round((self.now - 1000.0) * 1000)


@dataclass
class NotedAlarm:
    """An alarm that remembers for when it was set."""

    when: float | None = None

    def set(self, when: float | None) -> None:
        self.when = when


@dataclass
class NotedEvents:
    """An observer that remembers what it was told."""

    grants: list[tuple[str, float]] = field(default_factory=list)
    rejects: list[tuple[str, str]] = field(default_factory=list)
    first_tokens: list[tuple[str, float]] = field(default_factory=list)
    depths: dict[str, int] = field(default_factory=dict)

    def granted(self, model: str, waited_s: float) -> None:
        self.grants.append((model, waited_s))

    def rejected(self, model: str, reason: str) -> None:
        self.rejects.append((model, reason))

    def first_token(self, model: str, since_want_s: float) -> None:
        self.first_tokens.append((model, since_want_s))

    def queue_depth(self, model: str, num_waiting: int) -> None:
        self.depths[model] = num_waiting


def facts(replica_id: str = "a", **changes: Any) -> ReplicaFacts:
    """A ready replica with 100 blocks of 16 tokens and 4 sequences."""
    defaults = ReplicaFacts(
        replica_id=replica_id,
        model=MODEL,
        model_version="v1",
        address=f"{replica_id}:1",
        incarnation=f"{replica_id}-1",
        state=ReplicaState.READY,
        block_size=16,
        num_blocks=100,
        max_num_sequences=4,
        max_context_tokens=1000,
    )
    return replace(defaults, **changes)


def load(**changes: Any) -> Load:
    """An idle engine of the size of ``facts``."""
    return replace(Load(num_blocks=100, max_num_sequences=4), **changes)


def replica(replica_id: str = "a", **changes: Any) -> ReplicaSnapshot:
    """A connected, idle replica; fields of facts and load may be changed by name too."""
    of_facts = {name: value for name, value in changes.items() if name in ReplicaFacts.__dataclass_fields__}
    of_load = {name: value for name, value in changes.items() if name in Load.__dataclass_fields__}
    own = {name: value for name, value in changes.items() if name in ReplicaSnapshot.__dataclass_fields__}
    defaults = ReplicaSnapshot(
        facts=facts(replica_id, **of_facts),
        connected=True,
        load=load(**of_load),
        load_age_s=0.1,
        is_suspect=False,
        num_granted=0,
        num_in_flight=0,
        num_taken_blocks=0,
        last_pick=0,
    )
    return replace(defaults, **own)


def want(want_id: str = "w", **changes: Any) -> Want:
    """A want of one block of prompt and one of output."""
    return replace(Want(want_id=want_id, model=MODEL, prompt_tokens=16, max_output_tokens=16), **changes)


class AdmissionBench:
    """Admission with its view and ledger, on a clock that the test moves."""

    def __init__(self, limits: AdmissionLimits | None = None, **settings: Any) -> None:
        config = RouterConfig(**settings)
        self.clock, self.alarm, self.events = MovableClock(), NotedAlarm(), NotedEvents()
        self.ledger = GrantLedger()
        self.view = ReplicaView(self.ledger, self.clock, suspect_hold_s=config.suspect_hold_s)
        self.admission = Admission(
            self.view, self.ledger, config.policy(), limits or config.admission_limits(), self.clock, self.alarm, self.events
        )
        self.view.subscribe(self.admission.on_change)
        self.view.mark_complete()
        self._num_streams = 0

    def stream(self, gateway_id: str = "g") -> GatewayStream:
        """A new stream."""
        self._num_streams += 1
        return GatewayStream(self._num_streams, gateway_id, 1000)

    def up(self, replica_id: str, **changes: Any) -> None:
        """A replica that is registered, connected and idle."""
        self.view.register(facts(replica_id, **changes))
        self.view.connect(replica_id)
        self.view.report(replica_id, load(**{name: changes[name] for name in changes if name in Load.__dataclass_fields__}))

    def move(self, seconds: float) -> None:
        """Moves the clock, rings the alarm if its time has come, and has silent engines say again what they said."""
        self.clock.now += seconds
        if self.alarm.when is not None and self.alarm.when <= self.clock.now:
            self.admission.expire()

    def refresh(self) -> None:
        """Every connected engine repeats its last report."""
        for known in self.view.replicas():
            if known.connected:
                self.view.report(known.facts.replica_id, known.load)


def take(stream: GatewayStream) -> list[Answer]:
    """The answers that are unread."""
    answers = list(stream._answers)
    stream._answers.clear()
    return answers


def outcomes(stream: GatewayStream) -> list[tuple[str, str]]:
    """The unread answers as (want id, replica id or reason)."""
    return [(answer.want_id, _outcome(answer)) for answer in take(stream)]


def _outcome(answer: Answer) -> str:
    match answer:
        case Granted():
            return answer.replica_id
        case Rejected():
            return answer.reason
