"""Where the records of attempts go: the seam between the engine and the usage outbox."""

from typing import Protocol

from services.engine.outcome import AttemptEnd


class Recorder(Protocol):
    """Keeps the records of attempts."""

    def require_room(self) -> None:
        """Raises ResourceExhausted when no further paid work may be taken."""

    async def record(self, end: AttemptEnd) -> None:
        """Returns when the record is durable. Raises InferwayError when it could not be stored."""
