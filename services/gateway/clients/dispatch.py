"""The Dispatch link: all admission between this gateway and the router, over one stream that outlives the router's restarts."""

import asyncio
import logging
from dataclasses import dataclass
from functools import partial

import grpc

from inferway.router.v1 import router_pb2, router_pb2_grpc
from services.gateway.clients.link import Outgoing, attend
from services.gateway.dispatch import Grant, GrantOutcome, Want
from services.gateway.failures import typed_error
from services.kit.errors import InferwayError, Unavailable

log = logging.getLogger(__name__)

_PAUSE_S = 0.1
_CONNECT_TIMEOUT_S = 2.0

_OUTCOMES = {
    GrantOutcome.FINISHED: router_pb2.DONE_OUTCOME_FINISHED,
    GrantOutcome.CANCELLED: router_pb2.DONE_OUTCOME_CANCELLED,
    GrantOutcome.REPLICA_LOST: router_pb2.DONE_OUTCOME_REPLICA_LOST,
    GrantOutcome.FAILED: router_pb2.DONE_OUTCOME_FAILED,
}


@dataclass(frozen=True, slots=True)
class _Waiting:
    want: Want
    grant: "asyncio.Future[Grant]"


class DispatchLink:
    """A Dispatcher over gRPC. After a reconnect, wants that wait are asked again and grants in use are counted again."""

    def __init__(self, channel: grpc.aio.Channel, gateway_id: str, away_s: float) -> None:
        """`away_s`: how long wants wait for a router that cannot be reached."""
        self._stub = router_pb2_grpc.RouterStub(channel)
        self._gateway_id = gateway_id
        self._away_s = away_s
        self._outgoing: Outgoing[router_pb2.DispatchRequest] = Outgoing()
        self._waiting: dict[str, _Waiting] = {}
        self._held: dict[str, router_pb2.HeldGrant] = {}
        self._connected = False
        self._given_up = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def connected(self) -> bool:
        """Whether the router can be asked now."""
        return self._connected

    async def admit(self, want: Want) -> Grant:
        """See Dispatcher."""
        if self._given_up:
            raise _router_away()
        waiting = _Waiting(want, asyncio.get_running_loop().create_future())
        self._waiting[want.want_id] = waiting
        if self._connected:
            self._outgoing.put(_want(want))
        try:
            return await waiting.grant
        except asyncio.CancelledError:
            # The grant may be on its way, or here and not yet seen by the one who waits: Done covers all of it.
            self.done(want.want_id, GrantOutcome.CANCELLED)
            raise
        finally:
            self._waiting.pop(want.want_id, None)

    def first_token(self, want_id: str) -> None:
        """See Dispatcher."""
        if self._connected:
            self._outgoing.put(router_pb2.DispatchRequest(first_token=router_pb2.FirstToken(want_id=want_id)))

    def done(self, want_id: str, outcome: GrantOutcome) -> None:
        """See Dispatcher. While the link is down nothing needs to be said: the router released everything when it broke."""
        self._held.pop(want_id, None)
        if self._connected:
            self._outgoing.put(router_pb2.DispatchRequest(done=router_pb2.Done(want_id=want_id, outcome=_OUTCOMES[outcome])))

    async def run(self) -> None:
        """Keeps the link until cancelled."""
        self._count_down()
        try:
            while True:
                held = list(self._held.values())
                hello = router_pb2.DispatchRequest(hello=router_pb2.DispatchHello(gateway_id=self._gateway_id, held_grants=held))
                opened = partial(self._opened, [grant.want_id for grant in held])
                problem = await attend(self._stub.Dispatch(), hello, self._outgoing, opened, self._receive, _CONNECT_TIMEOUT_S)
                if self._connected:
                    log.warning("the link to the router broke", extra={"fields": {"problem": problem}})
                self._connected = False
                self._count_down()
                await asyncio.sleep(_PAUSE_S)
        finally:
            self._connected = False
            self._stop_count_down()

    def _opened(self, reported_want_ids: list[str]) -> None:
        """The hello is out: says what changed while it was on its way, and asks again for what still waits."""
        self._connected, self._given_up = True, False
        self._stop_count_down()
        self._outgoing.clear()
        for want_id in reported_want_ids:
            if want_id not in self._held:
                self.done(want_id, GrantOutcome.FINISHED)
        for waiting in self._waiting.values():
            self._outgoing.put(_want(waiting.want))
        log.info("the link to the router is open", extra={"fields": {"num_held": len(self._held), "num_waiting": len(self._waiting)}})

    def _count_down(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._away_s, self._give_up)

    def _stop_count_down(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        """The router was away too long: fails everything that waits, and new wants at once until it is back."""
        self._given_up = True
        for want_id in list(self._waiting):
            self._fail(want_id, _router_away())

    def _receive(self, response: router_pb2.DispatchResponse) -> None:
        if response.WhichOneof("kind") == "grant":
            self._granted(response.grant)
        elif response.WhichOneof("kind") == "reject":
            reject = response.reject
            retry_after_s = reject.retry_after_ms / 1000 if reject.retry_after_ms else None
            self._fail(reject.want_id, typed_error(reject.reason, reject.message, retry_after_s))

    def _granted(self, grant: router_pb2.Grant) -> None:
        waiting = self._waiting.get(grant.want_id)
        if waiting is None or waiting.grant.done():
            # Cancelled meanwhile; a grant that is held already was sent twice around a reconnect.
            if grant.want_id not in self._held:
                self.done(grant.want_id, GrantOutcome.CANCELLED)
            return
        want = waiting.want
        self._held[want.want_id] = router_pb2.HeldGrant(
            want_id=want.want_id,
            replica_id=grant.replica_id,
            model=want.model,
            reserved_tokens=want.prompt_tokens + want.max_output_tokens,
        )
        waiting.grant.set_result(Grant(want.want_id, grant.replica_id, grant.address, grant.model_version, grant.queue_ms))

    def _fail(self, want_id: str, error: InferwayError) -> None:
        waiting = self._waiting.get(want_id)
        if waiting is not None and not waiting.grant.done():
            waiting.grant.set_exception(error)


def _want(want: Want) -> router_pb2.DispatchRequest:
    return router_pb2.DispatchRequest(
        want=router_pb2.Want(
            want_id=want.want_id,
            model=want.model,
            model_version=want.model_version,
            tenant_id=want.tenant_id,
            prompt_tokens=want.prompt_tokens,
            max_output_tokens=want.max_output_tokens,
            deadline_unix_ms=want.deadline_unix_ms,
            excluded_replica_ids=want.excluded_replica_ids,
            request_id=want.request_id,
        )
    )


def _router_away() -> Unavailable:
    return Unavailable("the router cannot be reached; try again in a moment", reason="ROUTER_UNAVAILABLE", retry_after_s=1.0)
