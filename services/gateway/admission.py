"""Decides whether the gateway takes one more paid request."""

from collections.abc import Iterator
from contextlib import contextmanager

from services.gateway.records import RecordSink
from services.kit.errors import ResourceExhausted, Unavailable


class Admission:
    """Counts the requests in work."""

    def __init__(self, records: RecordSink, max_num_requests: int) -> None:
        self._records = records
        self._max_num_requests = max_num_requests
        self.closed = False
        self.num_requests = 0

    @contextmanager
    def enter(self) -> Iterator[None]:
        """Holds one place. DRAINING, OUTBOX_FULL (no bill could be kept) or QUEUE_FULL when there is none."""
        if self.closed:
            raise Unavailable("this gateway is shutting down; try again", reason="DRAINING", retry_after_s=1.0)
        self._records.require_room()
        if self.num_requests >= self._max_num_requests:
            raise ResourceExhausted("too many requests are in work; try again in a moment", reason="QUEUE_FULL", retry_after_s=1.0)
        self.num_requests += 1
        try:
            yield
        finally:
            self.num_requests -= 1

    def close(self) -> None:
        """Takes no more."""
        self.closed = True
