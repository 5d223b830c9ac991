"""The streams of all gateways: who speaks, what it holds, and what happens when it goes."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from services.kit.errors import Cancelled, Unavailable
from services.router.admission import Admission
from services.router.gateway_stream import GatewayStream
from services.router.want import HeldGrant, Want

_log = logging.getLogger(__name__)


class Dispatcher:
    """One stream per gateway: a gateway that comes again replaces its earlier stream, whose grants go with it or are released."""

    def __init__(self, admission: Admission, *, max_backlog: int) -> None:
        self._admission = admission
        self._max_backlog = max_backlog
        self._streams: dict[int, GatewayStream] = {}
        self._num_streams = 0
        self._draining = False

    def open(self, gateway_id: str, held: Sequence[HeldGrant]) -> GatewayStream:
        """Starts a stream and counts the grants that the gateway holds already. Raises Unavailable while draining."""
        if self._draining:
            raise _draining()
        self._num_streams += 1
        stream = GatewayStream(self._num_streams, gateway_id, self._max_backlog)
        self._streams[stream.stream_id] = stream
        self._admission.adopt(held, stream)
        for earlier in [known for known in self._streams.values() if known.gateway_id == gateway_id and known is not stream]:
            self.close(earlier, Cancelled("the gateway opened another stream"))
        _log.info("gateway connected", extra={"fields": {"gateway": gateway_id, "held_grants": len(held)}})
        return stream

    def want(self, stream: GatewayStream, want: Want) -> None:
        """Takes a want of a stream; ignored when the stream is closed, as nobody would release its grant."""
        if not stream.closed:
            self._admission.offer(want, stream)

    def first_token(self, want_id: str) -> None:
        """The first token of a grant arrived."""
        self._admission.first_token(want_id)

    def done(self, stream: GatewayStream, want_id: str, *, replica_lost: bool) -> None:
        """A grant or a want is over."""
        self._admission.done(want_id, stream, replica_lost=replica_lost)

    def close(self, stream: GatewayStream, error: Cancelled | Unavailable | None = None) -> None:
        """Ends a stream and releases everything it holds. Idempotent."""
        if self._streams.pop(stream.stream_id, None) is None:
            return
        stream.close(error)
        self._admission.release(stream)
        _log.info("gateway disconnected", extra={"fields": {"gateway": stream.gateway_id}})

    async def drain(self, _timeout_s: float) -> None:
        """Sends every gateway away at once: it keeps its grants and brings them and its waiting wants to the next router."""
        self._draining = True
        for stream in list(self._streams.values()):
            self.close(stream, _draining())


def _draining() -> Unavailable:
    return Unavailable("the router is draining", reason="DRAINING", retry_after_s=1.0)
