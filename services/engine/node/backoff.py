"""How long a replica that ended waits before it is started again: a pure rule of its past."""

from dataclasses import dataclass

FIRST_DELAY_S = 1.0
MAX_DELAY_S = 30.0
FORGIVEN_AFTER_S = 60.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """Ends in a row, none of which followed a long life."""

    num_ends: int = 0

    def after_end(self, lived_s: float) -> "Backoff":
        """The state after one more end; a life of FORGIVEN_AFTER_S or more wipes the earlier ones out."""
        return Backoff(1 if lived_s >= FORGIVEN_AFTER_S else self.num_ends + 1)

    @property
    def delay_s(self) -> float:
        """1, 2, 4, 8, 16, 30, 30 … seconds; 0 before the first end."""
        if not self.num_ends:
            return 0.0
        return min(MAX_DELAY_S, FIRST_DELAY_S * 2.0 ** min(self.num_ends - 1, 10))
