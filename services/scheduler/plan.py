"""What a round of the scheduler wants to change, each change with the sentence that explains it."""

from dataclasses import dataclass, field

from services.scheduler.fleet import Assignment


@dataclass(frozen=True, slots=True)
class Place:
    """Write a new assignment."""

    assignment: Assignment
    why: str


@dataclass(frozen=True, slots=True)
class StartDrain:
    """Replace an assignment by one that drains; `assignment` already carries the deadline."""

    assignment: Assignment
    why: str


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete an assignment: its replica is gone, or has had its time."""

    assignment: Assignment
    why: str


Change = Place | StartDrain | Remove


@dataclass(slots=True)
class Plan:
    """Changes in the order in which they are to be made, and what stands in the way, by model."""

    changes: list[Change] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)
