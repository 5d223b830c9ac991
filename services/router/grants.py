"""Open grants: the one owner of this router's in-flight figures, which therefore cannot leak or become negative."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

ADOPTED_TENURE = 0
"""Tenure of grants given by an earlier router: the engine's own figures count them, so ours must not."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A replica in use by one want. ``owner`` is the gateway stream that holds it; ``tenure`` the router's connection it was given on."""

    want_id: str
    owner: int
    model: str
    replica_id: str
    incarnation: str
    tenure: int
    num_blocks: int = 0
    address: str = ""
    model_version: str = ""
    wanted_at: float = 0.0
    """When the want arrived, monotonic seconds."""
    granted_at: float = 0.0


@dataclass(slots=True)
class Usage:
    """What the open grants of one tenure take."""

    num_grants: int = 0
    num_blocks: int = 0


class GrantLedger:
    """All open grants by want id. Every way out (done, stream break) goes through ``_remove``, once per grant."""

    def __init__(self) -> None:
        self._grants: dict[str, Grant] = {}
        self._by_owner: dict[int, dict[str, None]] = {}
        self._usage: dict[str, dict[tuple[str, int], Usage]] = {}

    def __len__(self) -> int:
        return len(self._grants)

    def __iter__(self) -> Iterator[Grant]:
        return iter(self._grants.values())

    def get(self, want_id: str) -> Grant | None:
        """The open grant of a want."""
        return self._grants.get(want_id)

    def add(self, grant: Grant) -> None:
        """Opens a grant. Raises ValueError when its want has one already."""
        if grant.want_id in self._grants:
            raise ValueError(f"want {grant.want_id} has a grant already")
        self._grants[grant.want_id] = grant
        self._by_owner.setdefault(grant.owner, {})[grant.want_id] = None
        usage = self._usage.setdefault(grant.replica_id, {}).setdefault((grant.incarnation, grant.tenure), Usage())
        usage.num_grants += 1
        usage.num_blocks += grant.num_blocks

    def release(self, want_id: str, owner: int) -> Grant | None:
        """Closes a grant; None when there is none or another stream holds it now, so releasing twice is harmless."""
        grant = self._grants.get(want_id)
        return self._remove(grant) if grant is not None and grant.owner == owner else None

    def release_owner(self, owner: int) -> list[Grant]:
        """Closes all grants of a stream."""
        return [self._remove(self._grants[want_id]) for want_id in list(self._by_owner.get(owner, ()))]

    def transfer(self, want_id: str, owner: int) -> Grant | None:
        """Gives an open grant to another stream; None when there is none."""
        grant = self._grants.get(want_id)
        if grant is None:
            return None
        moved = replace(self._remove(grant), owner=owner)
        self.add(moved)
        return moved

    def usage(self, replica_id: str, incarnation: str, tenure: int) -> Usage:
        """What grants of one tenure of a replica take; not to be changed by the caller."""
        return self._usage.get(replica_id, {}).get((incarnation, tenure)) or Usage()

    def num_open(self, replica_id: str, incarnation: str) -> int:
        """Open grants on one incarnation of a replica, adopted ones included."""
        usages = self._usage.get(replica_id, {})
        return sum(usage.num_grants for (known, _), usage in usages.items() if known in ("", incarnation))

    def _remove(self, grant: Grant) -> Grant:
        del self._grants[grant.want_id]
        owned = self._by_owner[grant.owner]
        del owned[grant.want_id]
        if not owned:
            del self._by_owner[grant.owner]
        usages = self._usage[grant.replica_id]
        usage = usages[grant.incarnation, grant.tenure]
        usage.num_grants -= 1
        usage.num_blocks -= grant.num_blocks
        if usage.num_grants == 0:
            del usages[grant.incarnation, grant.tenure]
        if not usages:
            del self._usage[grant.replica_id]
        return grant
