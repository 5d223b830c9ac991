"""What the checks found, as lines for an operator."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check; `detail` has the numbers and never prompt or answer text."""

    name: str
    passed: bool
    detail: str

    def __str__(self) -> str:
        return f"{'pass' if self.passed else 'FAIL'}  {self.name:<14}  {self.detail}"


@dataclass(slots=True)
class Findings:
    """Prints each finding as it comes, since the later ones take their time."""

    found: list[Finding] = field(default_factory=list)

    def add(self, name: str, passed: bool, detail: str) -> bool:
        """Take one in; returns whether it passed."""
        self.found.append(Finding(name, passed, detail))
        print(self.found[-1], flush=True)
        return passed

    @property
    def passed(self) -> bool:
        """Whether there are any, and none failed."""
        return bool(self.found) and all(finding.passed for finding in self.found)
