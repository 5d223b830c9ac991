"""Whatever happens in whatever order: grants and queue stay consistent and nobody is forgotten."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from services.router.decision import Outlook, decide
from services.router.gateway_stream import GatewayStream
from services.router.snapshot import ReplicaState
from services.router.want import Granted, Rejected, Want
from tests.harness.router_parts import MODEL, AdmissionBench, facts, load, take, want

REPLICAS = st.sampled_from(["a", "b", "c"])
GATEWAYS = st.sampled_from(["g", "h"])
GRACE_S, QUEUE_TIMEOUT_S, QUEUE_LENGTH = 2.0, 30.0, 5


class AdmissionMachine(RuleBasedStateMachine):
    """Random wants, grants, ends, breaks, replicas that come, go, restart and report nonsense, and time."""

    wants = Bundle("wants")

    def __init__(self) -> None:
        super().__init__()
        self.bench = AdmissionBench(max_queue_length=QUEUE_LENGTH, queue_timeout_s=QUEUE_TIMEOUT_S, no_replica_grace_s=GRACE_S)
        self.streams: dict[str, GatewayStream] = {name: self.bench.stream(name) for name in ("g", "h")}
        self.asked: dict[str, tuple[Want, GatewayStream, float]] = {}
        self.open_wants: list[str] = []
        self.open_grants: dict[str, GatewayStream] = {}
        self.answered: set[str] = set()
        self.incarnations = dict.fromkeys("abc", 1)

    @rule(
        target=wants,
        gateway=GATEWAYS,
        prompt_blocks=st.sampled_from([1, 1, 1, 40, 70]),
        version=st.sampled_from(["", "", "v1", "v2"]),
        excluded=st.sampled_from([frozenset(), frozenset(), frozenset("a"), frozenset("ab"), frozenset("abc")]),
    )
    def ask(self, gateway: str, prompt_blocks: int, version: str, excluded: frozenset[str]) -> str:
        want_id = f"w{len(self.asked)}"
        asked = want(want_id, prompt_tokens=16 * prompt_blocks - 16, model_version=version, excluded_replica_ids=excluded)
        self.asked[want_id] = (asked, self.streams[gateway], self.bench.clock.now)
        self.open_wants.append(want_id)
        self.bench.admission.offer(asked, self.streams[gateway])
        self.collect()
        return want_id

    @rule(want_id=consumes(wants), lost=st.booleans())
    def finish(self, want_id: str, lost: bool) -> None:
        stream = self.asked[want_id][1]
        self.forget(want_id)
        self.bench.admission.done(want_id, stream, replica_lost=lost)
        self.collect()

    @rule(want_id=wants, lost=st.booleans())
    def finish_on_the_wrong_stream(self, want_id: str, lost: bool) -> None:
        (other,) = [stream for stream in self.streams.values() if stream is not self.asked[want_id][1]][:1]
        self.bench.admission.done(want_id, other, replica_lost=lost)
        self.collect()

    @rule(gateway=GATEWAYS)
    def break_stream(self, gateway: str) -> None:
        broken = self.streams[gateway]
        for want_id in [name for name, (_, stream, _) in self.asked.items() if stream is broken]:
            self.forget(want_id)
        self.streams[gateway] = self.bench.stream(gateway)
        self.bench.admission.release(broken)
        self.collect()

    @rule(replica=REPLICAS, version=st.sampled_from(["v1", "v1", "v2"]), state=st.sampled_from([*ReplicaState, ReplicaState.READY]))
    def register(self, replica: str, version: str, state: ReplicaState) -> None:
        incarnation = f"{replica}-{self.incarnations[replica]}"
        self.bench.view.register(facts(replica, incarnation=incarnation, model_version=version, state=state, max_num_sequences=2))
        self.collect()

    @rule(replica=REPLICAS)
    def up(self, replica: str) -> None:
        self.register(replica, "v1", ReplicaState.READY)
        self.bench.view.connect(replica)
        self.bench.view.report(replica, load(max_num_sequences=2))
        self.collect()

    @rule(replica=REPLICAS)
    def restart(self, replica: str) -> None:
        self.incarnations[replica] += 1
        self.up(replica)

    @rule(replica=REPLICAS)
    def disconnect(self, replica: str) -> None:
        self.bench.view.disconnect(replica)
        self.collect()

    @rule(replica=REPLICAS)
    def remove(self, replica: str) -> None:
        self.bench.view.remove(replica)
        self.collect()

    @rule(replica=REPLICAS, running=st.integers(0, 4), used=st.integers(0, 120), draining=st.booleans())
    def report(self, replica: str, running: int, used: int, draining: bool) -> None:
        self.bench.view.report(replica, load(num_running=running, num_used_blocks=used, draining=draining, max_num_sequences=2))
        self.collect()

    @rule(seconds=st.sampled_from([0.125, 0.625, 2.0, 4.0, 31.0]), heard=st.booleans())
    def wait(self, seconds: float, heard: bool) -> None:
        self.bench.move(seconds)
        if heard:
            self.bench.refresh()
        self.collect()

    def collect(self) -> None:
        """Reads all answers; none may come twice, to the wrong stream or for a want that is over."""
        for stream in self.streams.values():
            for answer in take(stream):
                assert answer.want_id not in self.answered, "answered twice"
                assert self.asked[answer.want_id][1] is stream, "answered on another stream"
                assert answer.want_id in self.open_wants, "answered after its end"
                self.answered.add(answer.want_id)
                self.open_wants.remove(answer.want_id)
                if isinstance(answer, Granted):
                    self.check_order(answer)
                    self.open_grants[answer.want_id] = stream
                else:
                    self.check_reject(answer)

    def check_order(self, answer: Granted) -> None:
        """Nobody who asked earlier and could use this replica still waits."""
        granted_number = int(answer.want_id[1:])
        for waiting in self.bench.admission._queues.of_model(MODEL):
            if int(waiting.want.want_id[1:]) < granted_number:
                decision = decide(self.bench.view.snapshot(MODEL), waiting.want, self.bench.admission._policy)
                assert answer.replica_id not in decision.contended, "overtaken"

    def check_reject(self, answer: Rejected) -> None:
        asked_at = self.asked[answer.want_id][2]
        if answer.reason == "QUEUE_TIMEOUT":
            assert self.bench.clock.now - asked_at >= QUEUE_TIMEOUT_S
        elif answer.reason == "QUEUE_FULL":
            assert len(self.open_wants) >= QUEUE_LENGTH
        else:
            assert answer.reason == "NO_READY_REPLICA"

    def forget(self, want_id: str) -> None:
        if want_id in self.open_wants:
            self.open_wants.remove(want_id)
        self.open_grants.pop(want_id, None)

    @invariant()
    def every_want_is_open_or_over(self) -> None:
        waiting = [entry.want.want_id for entry in self.bench.admission._queues.of_model(MODEL)]
        assert sorted(waiting) == sorted(self.open_wants)
        assert waiting == sorted(waiting, key=lambda want_id: int(want_id[1:])), "order of arrival"
        assert len(waiting) <= QUEUE_LENGTH

    @invariant()
    def in_flight_is_the_sum_of_open_grants(self) -> None:
        ledger = self.bench.ledger
        assert {grant.want_id: grant.owner for grant in ledger} == {name: stream.stream_id for name, stream in self.open_grants.items()}
        usages = [usage for of_replica in ledger._usage.values() for usage in of_replica.values()]
        assert sum(usage.num_grants for usage in usages) == len(ledger)
        assert sum(usage.num_blocks for usage in usages) == sum(grant.num_blocks for grant in ledger)
        assert all(usage.num_grants > 0 and usage.num_blocks >= 0 for usage in usages)

    @invariant()
    def figures_of_replicas_are_never_negative_and_grants_fit(self) -> None:
        for known in self.bench.view.replicas():
            assert known.num_in_flight >= 0
            assert known.num_taken_blocks >= 0
            own = self.bench.ledger.usage(
                known.facts.replica_id, known.facts.incarnation, self.bench.view.tenure_of(known.facts.replica_id)
            )
            assert own.num_grants <= known.max_num_sequences

    @invariant()
    def nobody_waits_for_room_that_is_there(self) -> None:
        queue = self.bench.admission._queues.of_model(MODEL)
        if queue:
            decision = decide(self.bench.view.snapshot(MODEL), queue[0].want, self.bench.admission._policy)
            assert decision.outlook is not Outlook.PICKED

    @invariant()
    def whoever_waits_will_be_looked_at(self) -> None:
        if self.open_wants:
            assert self.bench.alarm.when is not None
            assert self.bench.alarm.when <= self.bench.clock.now + QUEUE_TIMEOUT_S

    def teardown(self) -> None:
        """In the end time answers everybody who still waits, and broken streams leave nothing behind."""
        for _ in range(3):
            self.bench.move(QUEUE_TIMEOUT_S)
            self.collect()
        assert self.open_wants == []
        for stream in self.streams.values():
            self.bench.admission.release(stream)
        assert len(self.bench.ledger) == 0
        assert self.bench.ledger._usage == {}


AdmissionMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestAdmissionInvariants = AdmissionMachine.TestCase
