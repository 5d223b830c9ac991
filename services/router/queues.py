"""Wants that wait, first in first out per model, and when the next of them has to be looked at."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

from services.router.gateway_stream import GatewayStream
from services.router.want import Want


@dataclass(slots=True)
class Waiting:
    """One want in the queue; times are monotonic seconds. ``held_since`` is set while no replica works for it."""

    want: Want
    stream: GatewayStream
    arrived_at: float
    deadline: float
    held_since: float | None = None
    due: float = 0.0


class Queues:
    """All waiting wants by id and by model. Bounds are the caller's business."""

    def __init__(self) -> None:
        self._waiting: dict[str, Waiting] = {}
        self._models: dict[str, dict[str, Waiting]] = {}
        self._due: list[tuple[float, int, str]] = []
        self._num_pushed = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def get(self, want_id: str) -> Waiting | None:
        """The waiting want of this id."""
        return self._waiting.get(want_id)

    def models(self) -> list[str]:
        """Models that wants wait for, sorted."""
        return sorted(self._models)

    def depth(self, model: str) -> int:
        """How many wants wait for a model."""
        return len(self._models.get(model, ()))

    def of_model(self, model: str) -> list[Waiting]:
        """The wants of a model in order; the list is the caller's."""
        return list(self._models.get(model, {}).values())

    def of_stream(self, stream: GatewayStream) -> list[Waiting]:
        """The wants of a stream."""
        return [waiting for waiting in self._waiting.values() if waiting.stream is stream]

    def add(self, waiting: Waiting) -> None:
        """Appends a want, to be looked at by its deadline."""
        self._waiting[waiting.want.want_id] = waiting
        self._models.setdefault(waiting.want.model, {})[waiting.want.want_id] = waiting
        self.look_at(waiting, waiting.deadline)

    def remove(self, waiting: Waiting) -> None:
        """Takes a want out; exactly once."""
        del self._waiting[waiting.want.want_id]
        of_model = self._models[waiting.want.model]
        del of_model[waiting.want.want_id]
        if not of_model:
            del self._models[waiting.want.model]

    def look_at(self, waiting: Waiting, when: float) -> None:
        """Sets the time at which ``pop_due`` returns the want."""
        waiting.due = when
        self._num_pushed += 1
        heapq.heappush(self._due, (when, self._num_pushed, waiting.want.want_id))
        if len(self._due) > 2 * len(self._waiting) + 64:
            self._compact()

    def next_due(self) -> float | None:
        """The earliest time at which a want is due; None when nothing waits."""
        while self._due and not self._is_current(self._due[0]):
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    def pop_due(self, now: float) -> Iterator[Waiting]:
        """The wants that are due, earliest first. Each has to be removed or given another time with ``look_at``."""
        while (when := self.next_due()) is not None and when <= now:
            _, _, want_id = heapq.heappop(self._due)
            yield self._waiting[want_id]

    def _is_current(self, entry: tuple[float, int, str]) -> bool:
        waiting = self._waiting.get(entry[2])
        return waiting is not None and waiting.due == entry[0]

    def _compact(self) -> None:
        self._due = [entry for entry in self._due if self._is_current(entry)]
        heapq.heapify(self._due)
