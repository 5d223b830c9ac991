"""Other parts of the mesh as the engine's domain sees them: the usage ledger's outbox and the replica registry."""

from inferway.common.v1 import registry_pb2
from inferway.metering.v1 import records_pb2
from services.engine.engine import Phase
from services.engine.outcome import AttemptEnd, Failed
from services.engine.sequence import EndReason
from services.kit.outbox import Outbox
from services.kit.registration import Registration

ATTEMPTS_TOPIC = "usage.attempts.v1"

_OUTCOMES = {
    EndReason.STOP: records_pb2.ATTEMPT_OUTCOME_FINISHED,
    EndReason.LENGTH: records_pb2.ATTEMPT_OUTCOME_FINISHED,
    EndReason.CANCELLED: records_pb2.ATTEMPT_OUTCOME_CANCELLED,
    EndReason.DEADLINE: records_pb2.ATTEMPT_OUTCOME_DEADLINE,
}
_STATES = {
    Phase.STARTING: registry_pb2.REPLICA_STATE_STARTING,
    Phase.READY: registry_pb2.REPLICA_STATE_READY,
    Phase.DRAINING: registry_pb2.REPLICA_STATE_DRAINING,
}


class UsageRecorder:
    """Puts attempt records into the outbox; see Recorder."""

    def __init__(self, outbox: Outbox, replica_id: str, model: str, model_version: str) -> None:
        self._outbox = outbox
        self._replica_id = replica_id
        self._model = model
        self._model_version = model_version

    def require_room(self) -> None:
        """See Recorder."""
        self._outbox.require_room()

    async def record(self, end: AttemptEnd) -> None:
        """See Recorder."""
        attempt = self._attempt(end)

        def make_value(producer_id: str, sequence: int) -> bytes:
            return records_pb2.UsageRecord(producer_id=producer_id, sequence=sequence, attempt=attempt).SerializeToString()

        await self._outbox.append(ATTEMPTS_TOPIC, end.tenant_id.encode(), make_value)

    def _attempt(self, end: AttemptEnd) -> records_pb2.AttemptRecord:
        outcome, counts = end.outcome, end.outcome.counts
        return records_pb2.AttemptRecord(
            attempt_id=end.attempt_id,
            charge_id=end.charge_id,
            request_id=end.request_id,
            tenant_id=end.tenant_id,
            model=self._model,
            model_version=self._model_version,
            replica_id=self._replica_id,
            outcome=records_pb2.ATTEMPT_OUTCOME_FAILED if isinstance(outcome, Failed) else _OUTCOMES[outcome.reason],
            prompt_tokens=counts.prompt_tokens,
            cached_prompt_tokens=counts.cached_prompt_tokens,
            output_tokens=counts.output_tokens,
            discarded_tokens=counts.discarded_tokens,
            resumed_tokens=counts.resumed_tokens,
            started_unix_ms=end.started_unix_ms,
            ended_unix_ms=end.ended_unix_ms,
        )


class ReplicaEntry:
    """The entry of this replica in the registry; follows its phase."""

    def __init__(self, replica: registry_pb2.Replica) -> None:
        self._replica = replica
        self._replica.state = registry_pb2.REPLICA_STATE_STARTING
        self._registration: Registration | None = None

    @property
    def replica(self) -> registry_pb2.Replica:
        """The entry as it should be in the registry now."""
        return self._replica

    def publish_to(self, registration: Registration) -> None:
        """Where changes are to be written."""
        self._registration = registration

    def show(self, phase: Phase, unix_ms: int) -> None:
        """Change the state in the registry, as soon as that is reachable."""
        self._replica.state = _STATES[phase]
        if phase is Phase.READY:
            self._replica.ready_unix_ms = unix_ms
        if self._registration is not None:
            self._registration.update(self._replica)
