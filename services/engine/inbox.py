"""What the event loop tells the step thread: sequences to take in and sequences to end."""

import threading
from dataclasses import dataclass, field

from services.engine.sequence import EndReason, Sequence


@dataclass(slots=True)
class Commands:
    """Everything said since the last look; starts are carried out before stops."""

    starts: list[Sequence] = field(default_factory=list)
    stops: dict[int, EndReason] = field(default_factory=dict)


class Inbox:
    """Many writers, one reader. Starts are bounded by `max_starts`; stops by the sequences that live, as one sequence has one stop."""

    def __init__(self, max_starts: int) -> None:
        self._max_starts = max_starts
        self._commands = Commands()
        self._changed = threading.Condition()
        self._closed = False

    @property
    def closed(self) -> bool:
        """True once the step thread has to end."""
        return self._closed

    @property
    def num_starts(self) -> int:
        """Sequences that the step thread has not seen yet."""
        return len(self._commands.starts)

    def start(self, sequence: Sequence) -> bool:
        """Hand a sequence over; False when there is no room (or no reader any more) and nothing was taken."""
        with self._changed:
            if self._closed or len(self._commands.starts) >= self._max_starts:
                return False
            self._commands.starts.append(sequence)
            self._changed.notify()
            return True

    def stop(self, sequence_id: int, reason: EndReason) -> None:
        """Ask for the end of a sequence; the first reason stands. An unknown sequence is no error: it may have just ended."""
        with self._changed:
            self._commands.stops.setdefault(sequence_id, reason)
            self._changed.notify()

    def close(self) -> None:
        """Make the step thread end after its present step."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def take(self, wait_s: float) -> Commands:
        """Everything said so far; waits up to `wait_s` seconds when that is nothing."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._commands.starts or self._commands.stops, timeout=wait_s)
            commands, self._commands = self._commands, Commands()
            return commands
