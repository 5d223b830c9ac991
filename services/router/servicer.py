"""Router RPCs: wire messages in, domain calls, wire messages out."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, TypeAlias

import grpc

from inferway.router.v1 import router_pb2, router_pb2_grpc
from services.kit.errors import InvalidArgument
from services.router.admission import Admission
from services.router.clients.replica_registry import facts_to_proto
from services.router.decision import Verdict
from services.router.dispatcher import Dispatcher
from services.router.explain import Explanation
from services.router.gateway_stream import GatewayStream
from services.router.replica_view import ReplicaView
from services.router.snapshot import ReplicaSnapshot
from services.router.want import Answer, Granted, HeldGrant, Want

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class RouterServicer(router_pb2_grpc.RouterServicer):
    """Serves inferway.router.v1.Router."""

    def __init__(self, dispatcher: Dispatcher, admission: Admission, view: ReplicaView) -> None:
        self._dispatcher = dispatcher
        self._admission = admission
        self._view = view

    async def Dispatch(
        self, request_iterator: AsyncIterator[router_pb2.DispatchRequest], context: Context
    ) -> AsyncIterator[router_pb2.DispatchResponse]:
        """See router.proto."""
        stream = await self._open(request_iterator)
        # The end of the call releases, whatever task or generator notices it first.
        context.add_done_callback(lambda _: self._dispatcher.close(stream))  # type: ignore[arg-type]  # The stub wants a Protocol no lambda fits.
        reading = asyncio.create_task(self._read(request_iterator, stream))
        try:
            async with contextlib.aclosing(stream.answers()) as answers:
                async for answer in answers:
                    yield answer_to_proto(answer)
            if reading.done():
                reading.result()
        finally:
            reading.cancel()
            self._dispatcher.close(stream)

    async def Explain(self, request: router_pb2.ExplainRequest, context: Context) -> router_pb2.ExplainResponse:
        """See router.proto."""
        return explanation_to_proto(self._admission.explain(want_from_proto(request.want)))

    async def ListReplicas(self, request: router_pb2.ListReplicasRequest, context: Context) -> router_pb2.ListReplicasResponse:
        """See router.proto."""
        return router_pb2.ListReplicasResponse(replicas=[replica_to_proto(replica) for replica in self._view.replicas(request.model)])

    async def _open(self, requests: AsyncIterator[router_pb2.DispatchRequest]) -> GatewayStream:
        first = await anext(requests, None)
        if first is None or first.WhichOneof("kind") != "hello" or not first.hello.gateway_id:
            raise InvalidArgument("the first message must be a hello with a gateway_id")
        return self._dispatcher.open(first.hello.gateway_id, [held_from_proto(held) for held in first.hello.held_grants])

    async def _read(self, requests: AsyncIterator[router_pb2.DispatchRequest], stream: GatewayStream) -> None:
        try:
            async for request in requests:
                self._handle(request, stream)
                await stream.wait_for_room()
        finally:
            # A gateway that has said all ends the stream; so does one that breaks the protocol.
            stream.close()

    def _handle(self, request: router_pb2.DispatchRequest, stream: GatewayStream) -> None:
        match request.WhichOneof("kind"):
            case "want" if not request.want.want_id:
                raise InvalidArgument("a want must have an id")
            case "want":
                self._dispatcher.want(stream, want_from_proto(request.want))
            case "first_token":
                self._dispatcher.first_token(request.first_token.want_id)
            case "done":
                lost = request.done.outcome == router_pb2.DONE_OUTCOME_REPLICA_LOST
                self._dispatcher.done(stream, request.done.want_id, replica_lost=lost)
            case "hello":
                raise InvalidArgument("hello must be the first message and be sent once")
            case _:
                raise InvalidArgument("the message has no kind that this router knows")


def want_from_proto(want: router_pb2.Want) -> Want:
    """A want without wire types. Raises InvalidArgument when it names no model."""
    if not want.model:
        raise InvalidArgument("a want must name a model")
    return Want(
        want_id=want.want_id,
        model=want.model,
        prompt_tokens=want.prompt_tokens,
        max_output_tokens=want.max_output_tokens,
        model_version=want.model_version,
        tenant_id=want.tenant_id,
        deadline_unix_ms=want.deadline_unix_ms,
        excluded_replica_ids=frozenset(want.excluded_replica_ids),
        request_id=want.request_id,
    )


def held_from_proto(held: router_pb2.HeldGrant) -> HeldGrant:
    """A held grant without wire types."""
    return HeldGrant(held.want_id, held.replica_id, held.model)


def answer_to_proto(answer: Answer) -> router_pb2.DispatchResponse:
    """A grant or a reject on the wire."""
    if isinstance(answer, Granted):
        grant = router_pb2.Grant(
            want_id=answer.want_id,
            replica_id=answer.replica_id,
            address=answer.address,
            model_version=answer.model_version,
            queue_ms=round(answer.queue_s * 1000),
        )
        return router_pb2.DispatchResponse(grant=grant)
    reject = router_pb2.Reject(
        want_id=answer.want_id, reason=answer.reason, message=answer.message, retry_after_ms=round(answer.retry_after_s * 1000)
    )
    return router_pb2.DispatchResponse(reject=reject)


def explanation_to_proto(explanation: Explanation) -> router_pb2.ExplainResponse:
    """An explanation on the wire."""
    return router_pb2.ExplainResponse(
        verdicts=[_verdict_to_proto(verdict) for verdict in explanation.verdicts],
        picked_replica_id=explanation.picked_replica_id,
        queue_position=explanation.queue_position,
        reason=explanation.reason,
    )


def replica_to_proto(replica: ReplicaSnapshot) -> router_pb2.ReplicaView:
    """One replica as the router sees it, on the wire; free blocks and running sequences are the engine's word."""
    load = replica.load
    return router_pb2.ReplicaView(
        replica=facts_to_proto(replica.facts),
        connected=replica.connected,
        num_granted=replica.num_granted,
        num_running=load.num_running,
        num_waiting=load.num_waiting,
        num_free_blocks=max(0, load.num_blocks - load.num_used_blocks),
        load_age_s=replica.load_age_s,
    )


def _verdict_to_proto(verdict: Verdict) -> router_pb2.ReplicaVerdict:
    return router_pb2.ReplicaVerdict(
        replica_id=verdict.replica.facts.replica_id,
        excluded_by=verdict.excluded_by,
        scores=[router_pb2.Score(scorer=score.scorer, value=score.value, weight=score.weight) for score in verdict.scores],
        total=verdict.total,
    )
