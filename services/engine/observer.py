"""Who counts what happens in a replica: the seam between the engine and its instruments."""

from typing import Protocol

from services.engine.attempt import Attempt
from services.engine.outcome import AttemptEnd
from services.engine.reports import StepReport


class Observer(Protocol):
    """Counts what attempts and steps do; must be quick."""

    def step(self, report: StepReport) -> None:
        """A report was read."""

    def tokens(self, attempt: Attempt, num_tokens: int, now_s: float) -> None:
        """Tokens that count came, at least one, all at once; called before `attempt.last_token_s` is moved."""

    def refused(self, reason: str) -> None:
        """An attempt was not accepted."""

    def ended(self, attempt: Attempt, end: AttemptEnd, now_s: float) -> None:
        """An accepted attempt has ended."""
