"""How an attempt ends: what its gateway is told and what its record says."""

from dataclasses import dataclass

from services.engine.sequence import EndReason


@dataclass(frozen=True, slots=True)
class Counts:
    """Engine truth of one attempt, in tokens; see AttemptCounts in engine.proto."""

    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_prompt_tokens: int = 0
    discarded_tokens: int = 0
    resumed_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Finished:
    """The attempt ended by itself, by its gateway or by its deadline: STOP, LENGTH, CANCELLED or DEADLINE."""

    reason: EndReason
    counts: Counts
    matched_stop: str = ""
    matched_stop_token_id: int | None = None
    """Of the stop tokens that the request named."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The attempt was refused or failed. `reason` is a name of ErrorReason without its prefix."""

    reason: str
    message: str
    can_retry: bool
    counts: Counts = Counts()


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """All that the record of an attempt needs beside the identity of the replica."""

    attempt_id: str
    charge_id: str
    request_id: str
    tenant_id: str
    outcome: Finished | Failed
    started_unix_ms: int
    ended_unix_ms: int


_FAILURES: dict[EndReason, tuple[str, str, bool]] = {
    EndReason.QUEUE_FULL: ("ENGINE_QUEUE_FULL", "the waiting room of this replica is full", True),
    EndReason.NON_FINITE_LOGITS: ("NON_FINITE_LOGITS", "the model gave numbers that are not finite for this request", False),
    EndReason.STEP_FAILED: ("STEP_FAILED", "the engine's step fails with this request, and works without it", False),
    EndReason.DRAINED: ("DRAINING", "the replica stopped before the answer was complete", True),
}


def outcome_of(reason: EndReason, counts: Counts, matched_stop: str | None, stop_token_id: int | None = None) -> Finished | Failed:
    """What an end means to the gateway. A complete stop string is the end of the answer whatever came after it."""
    if matched_stop is not None:
        return Finished(EndReason.STOP, counts, matched_stop)
    if reason in _FAILURES:
        name, message, retryable = _FAILURES[reason]
        return Failed(name, message, retryable, counts)
    return Finished(reason, counts, matched_stop_token_id=stop_token_id)
