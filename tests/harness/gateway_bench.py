"""A gateway's request lifecycle on fakes: start requests, play engines, and look at what was settled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest

from services.gateway.admission import Admission
from services.gateway.answer import Answer
from services.gateway.call import Call
from services.gateway.generation import Generation, GenerationLimits
from services.gateway.keys import Identity
from services.gateway.models import ServedModel
from services.gateway.pipeline import Pipeline
from services.gateway.request import GenerationRequest, Message, SamplingParams
from services.gateway.request_tasks import RequestTasks
from services.kit.errors import InferwayError, NotFound, Unauthenticated
from tests.harness.eventually import eventually
from tests.harness.gateway_fakes import CountingMeter, FakeAttempt, FakeClock, FakeDispatcher, FakeReplicas, MemoryRecords

IDENTITY = Identity("acme", "key_1", frozenset(), False, b"salt")
PROMPT = (5, 6, 7, 8)
WAIT_S = 10.0


class FixedKeys:
    """Knows the one key "good"."""

    def authenticate_tenant(self, authorization: Any) -> Identity:
        if tuple(authorization) != ("good",):
            raise Unauthenticated("who?")
        return IDENTITY


class FixedTemplate:
    """Every conversation is the same prompt."""

    prompt = PROMPT

    def encode(self, messages: Any, max_context_tokens: int) -> list[int]:
        return list(self.prompt)

    def encode_text(self, prompt: str, max_context_tokens: int) -> list[int]:
        return list(self.prompt)


class FixedModels:
    """Serves the model "m" with room for 20 tokens."""

    def __init__(self) -> None:
        self.max_context_tokens = 20
        self.template: Any = FixedTemplate()

    def resolve(self, name: str, identity: Identity) -> ServedModel:
        if name != "m":
            raise NotFound("no such model", reason="MODEL_NOT_FOUND")
        return ServedModel("m", "v1", self.max_context_tokens, 1000, 0, self.template)


@dataclass
class Bench:
    """A pipeline on fakes, and the ways to look at what it did."""

    threads: ThreadPoolExecutor
    max_num_requests: int = 8
    deadline_s: float = WAIT_S
    cancel_timeout_s: float = WAIT_S
    clock: FakeClock = field(default_factory=FakeClock)
    dispatcher: FakeDispatcher = field(default_factory=FakeDispatcher)
    replicas: FakeReplicas = field(default_factory=FakeReplicas)
    records: MemoryRecords = field(default_factory=MemoryRecords)
    meter: CountingMeter = field(default_factory=CountingMeter)
    tasks: RequestTasks = field(default_factory=RequestTasks)
    models: FixedModels = field(default_factory=FixedModels)

    def start(self, *, credentials: str = "good", timeout_s: float | None = None, read: Any = None, **fields: Any) -> Answer:
        request = GenerationRequest(
            **{"model": "m", "messages": (Message("user", "x"),), "sampling": SamplingParams(seed=1), "stream": True, **fields}
        )
        return self.pipeline.start(Call("req-1", (credentials,), "grpc", read or (lambda: request), timeout_s))

    @property
    def pipeline(self) -> Pipeline:
        if not hasattr(self, "admission"):
            self.admission = Admission(self.records, self.max_num_requests)
        limits = GenerationLimits(max_num_attempts=3, cancel_timeout_s=self.cancel_timeout_s)
        return Pipeline(
            keys=FixedKeys(),  # type: ignore[arg-type]
            models=self.models,
            admission=self.admission,
            generation=Generation(self.dispatcher, self.replicas, self.clock, limits),
            records=self.records,
            meter=self.meter,
            tokenizer_threads=self.threads,
            tasks=self.tasks,
            clock=self.clock,
            request_deadline_s=self.deadline_s,
        )

    async def attempt(self) -> FakeAttempt:
        async with asyncio.timeout(WAIT_S):
            return await self.replicas.started.get()

    async def idle(self) -> None:
        """Waits until no request is in work, and checks that nothing is left behind."""
        await eventually(lambda: len(self.tasks) == 0, WAIT_S)
        assert self.dispatcher.held == set()
        assert self.admission.num_requests == 0


async def read(answer: Answer) -> str:
    async with asyncio.timeout(WAIT_S):
        await answer.accepted()
        return "".join([piece.text async for pieces in answer.pieces() for piece in pieces])


async def refused(answer: Answer) -> InferwayError:
    with pytest.raises(InferwayError) as caught:
        await read(answer)
    return caught.value


def says(*texts: str, then: Callable[[FakeAttempt], None] = FakeAttempt.finish) -> Callable[[FakeAttempt], None]:
    """A script: the texts, one token each, then the end."""

    def script(attempt: FakeAttempt) -> None:
        for text in texts:
            attempt.say(text)
        then(attempt)

    return script


def lost(attempt: FakeAttempt) -> None:
    attempt.fail("REPLICA_LOST", lost=True)
