"""What the native runner says when it cannot go on: one sentence, and what to do about it."""


class LocalError(Exception):
    """A condition the operator can repair. `problem` is one clear sentence, `remedy` the next step to take."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem} {remedy}")
        self.problem = problem
        self.remedy = remedy


class NoAnswerError(LocalError):
    """Every service runs, but the model does not answer. The mesh is left running, for only a running one can be repaired."""
