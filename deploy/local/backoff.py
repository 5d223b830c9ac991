"""How long to wait before a dead child is started again: a pure rule of how often it died and how long it lived."""

from dataclasses import dataclass

INITIAL_S = 1.0
MAX_S = 30.0
HEALTHY_AFTER_S = 60.0


@dataclass(frozen=True)
class Backoff:
    """Consecutive early deaths of one child. Immutable; `after_death` gives the next state."""

    num_deaths: int = 0

    def after_death(self, alive_s: float) -> "Backoff":
        """Count a death; a life of HEALTHY_AFTER_S or more forgives the earlier ones."""
        return Backoff(1 if alive_s >= HEALTHY_AFTER_S else self.num_deaths + 1)

    @property
    def delay_s(self) -> float:
        """1, 2, 4 … 30 seconds; 0 before the first death."""
        if self.num_deaths == 0:
            return 0.0
        return min(MAX_S, INITIAL_S * 2.0 ** min(self.num_deaths - 1, 16))
