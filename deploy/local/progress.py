"""How the runner tells a person what it is doing."""

from contextlib import AbstractContextManager
from typing import Protocol


class Step(Protocol):
    """One line of progress."""

    def say(self, detail: str) -> None:
        """Replace what stands behind the step's name."""


class Progress(Protocol):
    """Steps may overlap; each is shown from entry to exit."""

    def step(self, name: str) -> AbstractContextManager[Step]: ...
