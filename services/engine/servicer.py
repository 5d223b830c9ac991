"""inferway.engine.v1.Engine: proto in, domain call, proto out."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc

from inferway.engine.v1 import engine_pb2, engine_pb2_grpc
from services.engine.attempts import AttemptRequest
from services.engine.engine import Engine
from services.engine.kv_events import Cleared, KvEvent, Removed, Stored
from services.engine.kv_feed import KvMessage
from services.engine.load import ReplicaLoad
from services.engine.outcome import Counts, Failed, Finished
from services.engine.runner import SamplingParams, TokenLogprobs
from services.engine.sequence import EndReason
from services.engine.session import AttemptUpdate, SessionMessage
from services.engine.session import Session as GatewaySession
from services.engine.token_bytes import TokenBytes
from services.kit.errors import InvalidArgument, Unavailable, Unimplemented

Context = grpc.aio.ServicerContext[Any, Any]

_TIER = "device"
"""There is no other one."""
_FINISH_REASONS = {
    EndReason.STOP: engine_pb2.FINISH_REASON_STOP,
    EndReason.LENGTH: engine_pb2.FINISH_REASON_LENGTH,
    EndReason.CANCELLED: engine_pb2.FINISH_REASON_CANCELLED,
    EndReason.DEADLINE: engine_pb2.FINISH_REASON_DEADLINE,
}


class EngineServicer(engine_pb2_grpc.EngineServicer):
    """`run` owns the readers of all sessions; `drain(timeout_s)` drains the replica and returns the number of aborted attempts."""

    def __init__(
        self, engine: Engine, vocabulary: TokenBytes, info: engine_pb2.GetInfoResponse, drain: Callable[[float], Awaitable[int]]
    ) -> None:
        self._engine = engine
        self._vocabulary = vocabulary
        self._info = info
        self._drain = drain
        self._readers: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Own the readers until cancelled."""
        async with asyncio.TaskGroup() as self._readers:
            await asyncio.Event().wait()

    async def Session(
        self, request_iterator: AsyncIterator[engine_pb2.SessionRequest], context: Context
    ) -> AsyncIterator[engine_pb2.SessionResponse]:
        """See engine.proto."""
        if self._readers is None:
            raise Unavailable("the replica is starting", reason="NO_READY_REPLICA")
        session = self._engine.open_session(await _hello(request_iterator))
        # A stream that breaks while a message is being sent leaves this generator suspended; the callback comes at once.
        context.add_done_callback(self._abort_when_done(session))  # type: ignore[arg-type]  # The stub wants its own private type.
        reader = self._readers.create_task(self._read(session, request_iterator))
        try:
            while (message := await session.next_message()) is not None:
                yield _session_response(message, self._vocabulary)
        finally:
            reader.cancel()
            self._engine.abort(session)

    async def Embed(self, request: engine_pb2.EmbedRequest, context: Context) -> engine_pb2.EmbedResponse:
        """See engine.proto."""
        raise Unimplemented("embeddings are not served yet; use an embedding service of your own")

    async def WatchLoad(self, request: engine_pb2.WatchLoadRequest, context: Context) -> AsyncIterator[engine_pb2.WatchLoadResponse]:
        """See engine.proto."""
        async for load in self._engine.loads.watch():
            yield _load_response(load)

    async def WatchKvEvents(
        self, request: engine_pb2.WatchKvEventsRequest, context: Context
    ) -> AsyncIterator[engine_pb2.WatchKvEventsResponse]:
        """See engine.proto."""
        async for message in self._engine.kv_events.watch(request.start_sequence_number):
            yield _kv_response(message)

    async def Drain(self, request: engine_pb2.DrainRequest, context: Context) -> engine_pb2.DrainResponse:
        """See engine.proto."""
        return engine_pb2.DrainResponse(num_aborted=await self._drain(request.timeout_s))

    async def GetInfo(self, request: engine_pb2.GetInfoRequest, context: Context) -> engine_pb2.GetInfoResponse:
        """See engine.proto."""
        return self._info

    def _abort_when_done(self, session: GatewaySession) -> Callable[[Any], None]:
        return lambda _context: self._engine.abort(session)

    async def _read(self, session: GatewaySession, requests: AsyncIterator[engine_pb2.SessionRequest]) -> None:
        """Carry out what the gateway says until it says no more."""
        try:
            async for request in requests:
                await session.wait_room()
                self._obey(session, request)
        except Exception as error:  # Whatever it is belongs to this stream: its handler raises it, the other sessions go on.
            session.close(error)
        else:
            session.end_input()

    def _obey(self, session: GatewaySession, request: engine_pb2.SessionRequest) -> None:
        match request.WhichOneof("kind"):
            case "start":
                self._engine.start(session, _attempt_request(request.start))
            case "cancel":
                self._engine.cancel(session, request.cancel.attempt_id)
            case _:
                raise InvalidArgument("after the hello only start and cancel are allowed")


async def _hello(requests: AsyncIterator[engine_pb2.SessionRequest]) -> str:
    async for request in requests:
        if request.WhichOneof("kind") == "hello":
            return request.hello.gateway_id
        break
    raise InvalidArgument("the first message of a session must be its hello")


def _attempt_request(start: engine_pb2.StartAttempt) -> AttemptRequest:
    return AttemptRequest(
        attempt_id=start.attempt_id,
        request_id=start.request_id,
        charge_id=start.charge_id,
        tenant_id=start.tenant_id,
        model=start.model,
        prompt_token_ids=list(start.prompt_token_ids),
        delivered_token_ids=list(start.delivered_token_ids),
        delivered_text_bytes=start.delivered_text_bytes,
        sampling=_sampling(start.sampling),
        max_output_tokens=start.max_output_tokens,
        stop=list(start.stop),
        deadline_unix_ms=start.deadline_unix_ms,
        priority=start.priority,
        choice=start.choice,
        ignore_eos=start.ignore_eos,
        traceparent=start.traceparent,
        cache_salt=start.cache_salt,
        min_output_tokens=start.min_output_tokens,
        stop_token_ids=list(start.stop_token_ids),
        include_stop=start.include_stop,
        num_logprobs=start.num_logprobs if start.HasField("num_logprobs") else None,
        num_prompt_logprobs=start.num_prompt_logprobs if start.HasField("num_prompt_logprobs") else None,
    )


def _sampling(sampling: engine_pb2.AttemptSampling) -> SamplingParams:
    return SamplingParams(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        seed=sampling.seed,
        min_p=sampling.min_p,
        repetition_penalty=sampling.repetition_penalty if sampling.repetition_penalty != 0 else 1.0,
        frequency_penalty=sampling.frequency_penalty,
        presence_penalty=sampling.presence_penalty,
        logit_bias=tuple((entry.token_id, entry.bias) for entry in sampling.logit_bias),
    )


def _session_response(message: SessionMessage, vocabulary: TokenBytes) -> engine_pb2.SessionResponse:
    events = [event for update in message.updates for event in _events(update, vocabulary)]
    return engine_pb2.SessionResponse(step=message.step, events=events)


def _events(update: AttemptUpdate, vocabulary: TokenBytes) -> list[engine_pb2.AttemptEvent]:
    events = []
    if update.has_delta:
        delta = engine_pb2.AttemptDelta(token_ids=update.token_ids, text="".join(update.texts), cached_prompt_tokens=update.num_cached)
        if update.logprobs or update.prompt_logprobs:
            delta.logprobs.extend(_logprobs(position, vocabulary) for position in update.logprobs)
            delta.prompt_logprobs.extend(_logprobs(position, vocabulary) for position in update.prompt_logprobs)
        events.append(engine_pb2.AttemptEvent(attempt_id=update.attempt_id, delta=delta))
    if isinstance(update.end, Finished):
        finished = engine_pb2.AttemptFinished(
            reason=_FINISH_REASONS[update.end.reason],
            counts=_counts(update.end.counts),
            matched_stop=update.end.matched_stop,
            matched_stop_token_id=update.end.matched_stop_token_id,
        )
        events.append(engine_pb2.AttemptEvent(attempt_id=update.attempt_id, finished=finished))
    elif isinstance(update.end, Failed):
        failed = engine_pb2.AttemptFailed(
            reason=update.end.reason, message=update.end.message, retryable=update.end.can_retry, counts=_counts(update.end.counts)
        )
        events.append(engine_pb2.AttemptEvent(attempt_id=update.attempt_id, failed=failed))
    return events


def _logprobs(position: TokenLogprobs, vocabulary: TokenBytes) -> engine_pb2.TokenLogprobs:
    return engine_pb2.TokenLogprobs(
        chosen=engine_pb2.TokenLogprob(token_id=position.token_id, token=vocabulary[position.token_id], logprob=position.logprob),
        top=[engine_pb2.TokenLogprob(token_id=token, token=vocabulary[token], logprob=logprob) for token, logprob in position.top],
    )


def _counts(counts: Counts) -> engine_pb2.AttemptCounts:
    return engine_pb2.AttemptCounts(
        prompt_tokens=counts.prompt_tokens,
        output_tokens=counts.output_tokens,
        cached_prompt_tokens=counts.cached_prompt_tokens,
        discarded_tokens=counts.discarded_tokens,
        resumed_tokens=counts.resumed_tokens,
    )


def _kv_response(message: KvMessage) -> engine_pb2.WatchKvEventsResponse:
    events = [_kv_event(event) for event in message.events]
    return engine_pb2.WatchKvEventsResponse(sequence_number=message.sequence_number, events=events)


def _kv_event(event: KvEvent) -> engine_pb2.KvEvent:
    match event:
        case Stored(parent, hashes):
            return engine_pb2.KvEvent(stored=engine_pb2.KvBlocksStored(block_hashes=hashes, parent_hash=parent, tier=_TIER))
        case Removed(hashes):
            return engine_pb2.KvEvent(removed=engine_pb2.KvBlocksRemoved(block_hashes=hashes, tier=_TIER))
        case Cleared():
            return engine_pb2.KvEvent(cleared=engine_pb2.KvCleared())


def _load_response(load: ReplicaLoad) -> engine_pb2.WatchLoadResponse:
    return engine_pb2.WatchLoadResponse(
        num_running=load.batch.num_running,
        num_waiting=load.num_waiting,
        num_waiting_tokens=load.batch.num_waiting_tokens,
        num_used_blocks=load.batch.num_used_blocks,
        num_blocks=load.num_blocks,
        max_num_sequences=load.max_num_sequences,
        heartbeat_age_s=load.heartbeat_age_s,
        draining=load.draining,
        output_tokens_total=load.output_tokens_total,
        prompt_tokens_total=load.prompt_tokens_total,
        num_cached_blocks=load.batch.num_cached_blocks,
        cached_prompt_tokens_total=load.batch.num_cache_hit_tokens,
    )
