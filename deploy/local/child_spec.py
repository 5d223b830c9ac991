"""What the supervisor needs to know about one child: how to start it, when it counts as ready, and what it waits for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from deploy.local.probes import Probe


@dataclass(frozen=True)
class ChildSpec:
    """One process of the mesh. `after` names the children that must be ready first; `grace_s` is the time from SIGTERM to SIGKILL.

    `alive` is asked as long as the child is ready: a child that gives no answer several times in a row is killed and started again. It has
    to be true of a child that cannot do its work for the fault of another. Without it only the child's death counts.
    """

    name: str
    argv: tuple[str, ...]
    probe: Probe
    environ: Mapping[str, str] = field(default_factory=dict)
    after: frozenset[str] = frozenset()
    ports: Mapping[str, int] = field(default_factory=dict)
    grace_s: float = 10.0
    alive: Probe | None = None


def levels(specs: Sequence[ChildSpec]) -> list[list[ChildSpec]]:
    """Start order: each level needs only earlier ones. Raises ValueError for an unknown name, a duplicate or a cycle."""
    names = [spec.name for spec in specs]
    if len(set(names)) != len(names):
        raise ValueError(f"duplicate child name among {sorted(names)}")
    left, done, order = list(specs), set[str](), list[list[ChildSpec]]()
    while left:
        level = [spec for spec in left if spec.after <= done]
        if not level:
            raise ValueError(f"children wait for each other or for an unknown one: {sorted(spec.name for spec in left)}")
        order.append(level)
        done.update(spec.name for spec in level)
        left = [spec for spec in left if spec not in level]
    return order
