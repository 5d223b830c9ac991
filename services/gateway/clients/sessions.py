"""The Session links: one stream per engine replica carries all attempts of this gateway; when it breaks, all of them are lost at once."""

import asyncio
import contextvars
import logging
from collections.abc import Callable

import grpc

from inferway.engine.v1 import engine_pb2, engine_pb2_grpc
from services.gateway.attempt import Attempt, AttemptFeed, Delta, EndReason, Failed, Finished
from services.gateway.clients.link import Outgoing, attend
from services.gateway.dispatch import Grant
from services.gateway.logprobs import TokenLogprob, TokenLogprobs
from services.gateway.request import SamplingParams
from services.kit import tracing

log = logging.getLogger(__name__)

_REASONS = {
    engine_pb2.FINISH_REASON_STOP: EndReason.STOP,
    engine_pb2.FINISH_REASON_LENGTH: EndReason.LENGTH,
    engine_pb2.FINISH_REASON_CANCELLED: EndReason.CANCELLED,
    engine_pb2.FINISH_REASON_DEADLINE: EndReason.DEADLINE,
}

Connect = Callable[[str], grpc.aio.Channel]


class EngineSessions:
    """Replicas over gRPC. The first grant for an address opens a session, which lives until it breaks; the next grant opens another."""

    def __init__(self, connect: Connect, gateway_id: str, connect_timeout_s: float) -> None:
        self._connect = connect
        self._gateway_id = gateway_id
        self._connect_timeout_s = connect_timeout_s
        self._sessions: dict[str, _Session] = {}
        self._tasks: asyncio.TaskGroup | None = None

    @property
    def num_open(self) -> int:
        """Sessions that are open or being opened."""
        return len(self._sessions)

    async def run(self) -> None:
        """Owns the sessions until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            await asyncio.get_running_loop().create_future()

    def start(self, grant: Grant, attempt: Attempt) -> AttemptFeed:
        """See Replicas."""
        session = self._sessions.get(grant.address)
        if session is None:
            assert self._tasks is not None, "run() owns the sessions and was not started"
            session = _Session(self._connect(grant.address), self._gateway_id)
            self._sessions[grant.address] = session
            # In a context of its own: it outlives the request that happens to be the first, and is none of its business.
            self._tasks.create_task(self._attend(grant.address, session), context=contextvars.Context())
        return session.start(attempt)

    async def _attend(self, address: str, session: "_Session") -> None:
        try:
            problem = await session.run(self._connect_timeout_s)
            log.warning("the session with a replica ended", extra={"fields": {"address": address, "problem": problem}})
        finally:
            # First out of the table, then the news: who starts again because of it must get a new session.
            self._sessions.pop(address, None)
            session.lose_all()
            await session.close()


class _Session:
    def __init__(self, channel: grpc.aio.Channel, gateway_id: str) -> None:
        self._channel = channel
        self._gateway_id = gateway_id
        self._outgoing: Outgoing[engine_pb2.SessionRequest] = Outgoing()
        self._feeds: dict[str, AttemptFeed] = {}

    def start(self, attempt: Attempt) -> AttemptFeed:
        feed = AttemptFeed(attempt.attempt_id, self._cancel)
        self._feeds[attempt.attempt_id] = feed
        self._outgoing.put(engine_pb2.SessionRequest(start=_start(attempt)))
        return feed

    async def run(self, connect_timeout_s: float) -> str:
        """Runs until the stream ends, and says why it ended."""
        hello = engine_pb2.SessionRequest(hello=engine_pb2.SessionHello(gateway_id=self._gateway_id))
        call = engine_pb2_grpc.EngineStub(self._channel).Session()
        return await attend(call, hello, self._outgoing, _nothing, self._receive, connect_timeout_s)

    async def close(self) -> None:
        await self._channel.close()

    def lose_all(self) -> None:
        """Every attempt of this session is gone; the engine aborts them as well."""
        for feed in self._feeds.values():
            feed.end(Failed("REPLICA_LOST", "the connection to the replica broke", retryable=True, lost=True))
        self._feeds.clear()

    def _cancel(self, attempt_id: str) -> None:
        self._outgoing.put(engine_pb2.SessionRequest(cancel=engine_pb2.CancelAttempt(attempt_id=attempt_id)))

    def _receive(self, response: engine_pb2.SessionResponse) -> None:
        """One step of the engine: hands every attempt its part."""
        for event in response.events:
            feed = self._feeds.get(event.attempt_id)
            if feed is None:
                continue
            kind = event.WhichOneof("kind")
            if kind == "delta":
                feed.push(_delta(event.delta))
                continue
            del self._feeds[event.attempt_id]
            feed.end(_finished(event.finished) if kind == "finished" else _failed(event.failed))


def _nothing() -> None:
    """The first attempt waits in the queue: nothing is to be done when the session opens."""


def _start(attempt: Attempt) -> engine_pb2.StartAttempt:
    return engine_pb2.StartAttempt(
        attempt_id=attempt.attempt_id,
        request_id=attempt.request_id,
        charge_id=attempt.charge_id,
        tenant_id=attempt.tenant_id,
        model=attempt.model,
        prompt_token_ids=attempt.prompt_token_ids,
        delivered_token_ids=attempt.delivered_token_ids,
        delivered_text_bytes=attempt.delivered_text_bytes,
        sampling=_sampling(attempt.sampling),
        max_output_tokens=attempt.max_output_tokens,
        stop=attempt.stop,
        cache_salt=attempt.cache_salt,
        deadline_unix_ms=attempt.deadline_unix_ms,
        choice=attempt.choice,
        traceparent=tracing.current().traceparent,
        ignore_eos=attempt.ignore_eos,
        min_output_tokens=attempt.min_output_tokens,
        stop_token_ids=attempt.stop_token_ids,
        include_stop=attempt.include_stop,
        num_logprobs=attempt.num_logprobs,
        num_prompt_logprobs=attempt.num_prompt_logprobs,
    )


def _sampling(sampling: SamplingParams) -> engine_pb2.AttemptSampling:
    return engine_pb2.AttemptSampling(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        seed=sampling.seed,
        min_p=sampling.min_p,
        repetition_penalty=sampling.repetition_penalty,
        frequency_penalty=sampling.frequency_penalty,
        presence_penalty=sampling.presence_penalty,
        logit_bias=[engine_pb2.LogitBias(token_id=token_id, bias=bias) for token_id, bias in sampling.logit_bias],
    )


def _delta(delta: engine_pb2.AttemptDelta) -> Delta:
    return Delta(
        tuple(delta.token_ids),
        delta.text,
        delta.cached_prompt_tokens,
        tuple(map(_logprobs, delta.logprobs)) if delta.logprobs else (),
        tuple(map(_logprobs, delta.prompt_logprobs)) if delta.prompt_logprobs else (),
    )


def _logprobs(position: engine_pb2.TokenLogprobs) -> TokenLogprobs:
    return TokenLogprobs(_logprob(position.chosen), tuple(map(_logprob, position.top)))


def _logprob(token: engine_pb2.TokenLogprob) -> TokenLogprob:
    return TokenLogprob(token.token_id, token.token, token.logprob)


def _finished(finished: engine_pb2.AttemptFinished) -> Finished | Failed:
    reason = _REASONS.get(finished.reason)
    if reason is None:
        return Failed("INTERNAL", "the replica ended the request for a reason that is not in the contract", retryable=False)
    return Finished(reason, finished.counts.output_tokens, finished.counts.cached_prompt_tokens)


def _failed(failed: engine_pb2.AttemptFailed) -> Failed:
    return Failed(failed.reason, failed.message, retryable=failed.retryable)
