"""One engine replica in this process, whose steps a test may let through one by one, and gateways that talk to it."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from inferway.engine.v1 import engine_pb2, engine_pb2_grpc
from inferway.metering.v1 import records_pb2
from services.engine.config import EngineConfig
from services.engine.mesh import Mesh
from services.engine.runner import ModelInfo, ModelRunner, RunnerSettings, SequenceSlice, StepOutput
from services.engine.runner_registry import make_runner
from services.engine.server import LONG_STREAMS, Replica
from services.engine.token_bytes import TokenBytes
from services.kit.channel import connect
from services.kit.metrics import new_registry
from services.kit.model_store import TOKENIZER, ModelStore
from services.kit.server import ServerSettings, ServiceState, serve
from services.kit.tracing import open_tracer
from tests.harness.tiny_model import NAME, write_tiny_model

TIMEOUT_S = 20.0


class GatedRunner:
    """A runner whose steps wait for a permit while the gate is shut."""

    def __init__(self, inner: ModelRunner) -> None:
        self._inner = inner
        self._permits = threading.Semaphore(0)
        self._shut = False
        self.num_begun = 0
        """Steps that began, those at the gate included."""
        self.num_failures_wanted = 0
        self.poison: int | None = None
        """A token with which every step fails."""
        self.blinding: int | None = None
        """A token for whose sequences the numbers are not finite."""
        self.script: Sequence[int] = ()
        """Tokens that every answer is made of, over and over, instead of the runner's own."""
        self.num_sequences: list[int] = []
        """Sequences in every step that ran."""

    @property
    def info(self) -> ModelInfo:
        """See ModelRunner."""
        return self._inner.info

    def shut(self) -> None:
        """From now on steps wait."""
        self._shut = True

    def allow(self, num_steps: int = 1) -> None:
        """Let steps through."""
        self._permits.release(num_steps)

    def open(self) -> None:
        """Let everything through."""
        self._shut = False
        self._permits.release(1000)

    def step(self, slices: Sequence[SequenceSlice]) -> list[StepOutput]:
        """See ModelRunner."""
        self.num_begun += 1
        if self._shut:
            self._permits.acquire()
        self.num_sequences.append(len(slices))
        if self.num_failures_wanted:
            self.num_failures_wanted -= 1
            raise RuntimeError("broken on purpose")
        outputs = self._inner.step(slices)
        if self.poison is not None and any(self.poison in part.context for part in slices):
            raise MemoryError
        for part, output in zip(slices, outputs, strict=True):
            if self.blinding is not None and self.blinding in part.context:
                output.token_id, output.error = None, "not finite"
            if self.script and output.token_id is not None:
                output.token_id, output.further = self.script[part.output_position % len(self.script)], []
        return outputs

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """See ModelRunner."""
        self._inner.copy_blocks(pairs)

    def warm_up(self) -> None:
        """See ModelRunner."""
        self._inner.warm_up()

    def close(self) -> None:
        """See ModelRunner."""
        self._inner.close()


class EngineUnderTest:
    """A running replica of the tiny model."""

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.runner: GatedRunner | None = None
        self.stop = asyncio.Event()
        self.listening = asyncio.Event()
        self.port = 0
        self._mesh: Mesh | None = None

    @property
    def gate(self) -> GatedRunner:
        """The runner, once loaded."""
        assert self.runner is not None
        return self.runner

    async def serve(self) -> None:
        """Run until `stop`."""
        config = self.config
        version = ModelStore(Path(config.home)).get(config.model)
        registry = new_registry()
        self._mesh = Mesh(config, registry)
        vocabulary = TokenBytes.from_json(version.read(TOKENIZER))
        tracer = open_tracer("engine", config.otlp_endpoint, config.trace_sample_ratio)
        self.replica = Replica(config, version, vocabulary, self._mesh, registry, self._make_runner, tracer)
        settings = ServerSettings(drain_timeout_s=config.drain_timeout_s, metrics_port=config.metrics_port)
        try:
            await serve(
                settings,
                name="engine",
                registry=registry,
                register=self.replica.register,
                run=self._run,
                drain=self.replica.stop,
                stop=self.stop,
                tracer=tracer,
                long_streams=LONG_STREAMS,
            )
        finally:
            await self._mesh.close()

    async def records(self) -> list[records_pb2.AttemptRecord]:
        """All attempt records of the outbox, oldest first."""
        assert self._mesh is not None
        rows = await self._mesh.outbox.read(0, 10_000)
        return [records_pb2.UsageRecord.FromString(row.value).attempt for row in rows]

    async def _run(self, state: ServiceState) -> None:
        self.port = state.port
        self.listening.set()
        try:
            await self.replica.run(state)
        finally:
            self.listening.set()

    def _make_runner(self, name: str, settings: RunnerSettings) -> ModelRunner:
        self.runner = GatedRunner(make_runner(name, settings))
        return self.runner


Running = tuple[EngineUnderTest, grpc.aio.Channel]
"""What `running_engine` gives: the replica and a channel to it."""


@dataclass
class Heard:
    """What a gateway has heard of one attempt."""

    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    logprobs: list[engine_pb2.TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: list[engine_pb2.TokenLogprobs] = field(default_factory=list)
    finished: engine_pb2.AttemptFinished | None = None
    failed: engine_pb2.AttemptFailed | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing follows."""
        return self.finished is not None or self.failed is not None


class GatewayStub:
    """One gateway's session, three times as long as it waits for one message at most."""

    def __init__(self, channel: grpc.aio.Channel, gateway_id: str = "gateway-1", patience_s: float = TIMEOUT_S) -> None:
        self.call = engine_pb2_grpc.EngineStub(channel).Session(timeout=3 * patience_s)
        self._patience_s = patience_s
        self.heard: dict[str, Heard] = {}
        self.messages: list[engine_pb2.SessionResponse] = []
        self._gateway_id = gateway_id

    async def hello(self) -> "GatewayStub":
        """Say who speaks."""
        await self.call.write(engine_pb2.SessionRequest(hello=engine_pb2.SessionHello(gateway_id=self._gateway_id)))
        return self

    async def start(self, attempt_id: str, **fields: Any) -> None:
        """Start an attempt."""
        await self.call.write(engine_pb2.SessionRequest(start=start_attempt(attempt_id, **fields)))

    async def cancel(self, attempt_id: str) -> None:
        """Cancel an attempt."""
        await self.call.write(engine_pb2.SessionRequest(cancel=engine_pb2.CancelAttempt(attempt_id=attempt_id)))

    async def read(self) -> engine_pb2.SessionResponse | None:
        """The next message, None at the end of the stream."""
        async with asyncio.timeout(self._patience_s):
            message = await self.call.read()
        if message is grpc.aio.EOF:
            return None
        self.messages.append(message)
        for event in message.events:
            self._hear(event)
        return message

    async def until_end(self, *attempt_ids: str) -> list[Heard]:
        """Read until all these attempts have ended."""
        while not all(attempt_id in self.heard and self.heard[attempt_id].ended for attempt_id in attempt_ids):
            assert await self.read() is not None, "the stream ended before the attempts"
        return [self.heard[attempt_id] for attempt_id in attempt_ids]

    async def run(self, attempt_id: str, **fields: Any) -> Heard:
        """Start one attempt and wait for its end."""
        await self.start(attempt_id, **fields)
        return (await self.until_end(attempt_id))[0]

    def _hear(self, event: engine_pb2.AttemptEvent) -> None:
        heard = self.heard.setdefault(event.attempt_id, Heard())
        match event.WhichOneof("kind"):
            case "delta":
                assert not heard.ended, "a delta after the end"
                assert event.delta.token_ids or event.delta.text or event.delta.prompt_logprobs, "an empty delta"
                assert not event.delta.prompt_logprobs or not heard.token_ids, "log-probabilities of the prompt after a token"
                heard.logprobs += event.delta.logprobs
                heard.prompt_logprobs += event.delta.prompt_logprobs
                heard.token_ids += event.delta.token_ids
                heard.text += event.delta.text
            case "finished":
                heard.finished = event.finished
            case "failed":
                heard.failed = event.failed


def start_attempt(attempt_id: str, **fields: Any) -> engine_pb2.StartAttempt:
    """A greedy attempt over a small prompt; `fields` replace its fields."""
    usual: dict[str, Any] = {
        "request_id": f"request of {attempt_id}"[:100],
        "charge_id": f"charge of {attempt_id}"[:100],
        "tenant_id": "tenant-1",
        "model": NAME,
        "prompt_token_ids": [10, 20, 30],
        "max_output_tokens": 8,
        "sampling": engine_pb2.AttemptSampling(temperature=0, top_p=1, seed=1),
    }
    return engine_pb2.StartAttempt(attempt_id=attempt_id, **{**usual, **fields})


async def wait_health(channel: grpc.aio.Channel, serving: bool) -> None:
    """Wait until grpc.health.v1 says so."""
    wanted = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
    call = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S)
    async for response in call:
        if response.status == wanted:
            call.cancel()
            return
    raise AssertionError(f"health never was {wanted}")


async def wait_load(channel: grpc.aio.Channel, **fields: int) -> engine_pb2.WatchLoadResponse:
    """Wait until the load has these values."""
    call = engine_pb2_grpc.EngineStub(channel).WatchLoad(engine_pb2.WatchLoadRequest(), timeout=TIMEOUT_S)
    async for load in call:
        if all(getattr(load, name) == value for name, value in fields.items()):
            call.cancel()
            return load  # type: ignore[no-any-return]
    raise AssertionError(f"the load never was {fields}")


@asynccontextmanager
async def running_engine(home: Path, **settings: Any) -> AsyncIterator[tuple[EngineUnderTest, grpc.aio.Channel]]:
    """A ready replica with steps of no length, and a channel to it."""
    if not (home / "models").exists():
        write_tiny_model(home)
    usual: dict[str, Any] = {"runner": "sim", "sim_step_ms": 0.0, "block_size": 4, "num_blocks": 256, "drain_timeout_s": 5.0}
    engine = EngineUnderTest(EngineConfig(model=NAME, home=str(home), **{**usual, **settings}))
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(engine.serve())
        async with asyncio.timeout(TIMEOUT_S):
            await engine.listening.wait()
        async with connect(f"127.0.0.1:{engine.port}") as channel:
            await wait_health(channel, serving=True)
            yield engine, channel
            engine.gate.open()
            engine.stop.set()
            await asyncio.wait({serving})
