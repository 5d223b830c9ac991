"""kit's server on loopback: typed errors on every kind of RPC, health, metrics, drain, ports."""

import asyncio
import socket
import urllib.request
from collections.abc import AsyncIterator

import grpc
import pytest
from google.protobuf.wrappers_pb2 import StringValue
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.kit import metrics, status
from services.kit.channel import connect
from services.kit.errors import ConfigError, FieldError, InvalidArgument
from services.kit.metrics import new_registry
from services.kit.server import ServerSettings
from tests.harness.kit_service import NAME, Echo, caller


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    service = Echo(ServerSettings(metrics_port=0, drain_timeout_s=5))
    task = asyncio.ensure_future(service.serve(new_registry()))
    await asyncio.wait({task, asyncio.ensure_future(service.started.wait())}, return_when=asyncio.FIRST_COMPLETED)
    yield service
    service.stop.set()
    await task


@pytest.fixture
async def channel(echo: Echo) -> AsyncIterator[grpc.aio.Channel]:
    assert echo.state is not None
    async with connect(f"127.0.0.1:{echo.state.port}") as channel:
        yield channel


async def failure(channel: grpc.aio.Channel, text: str, kind: str) -> grpc.aio.AioRpcError:
    message = StringValue(value=text)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        if kind == "unary_unary":
            await caller(channel, "Unary", kind)(message, timeout=5)
        elif kind == "unary_stream":
            [_ async for _ in caller(channel, "Stream", kind)(message, timeout=5)]
        else:
            [_ async for _ in caller(channel, "Talk", kind)(iter([message]), timeout=5)]
    return caught.value


KINDS = ("unary_unary", "unary_stream", "stream_stream")


@pytest.mark.parametrize("kind", KINDS)
async def test_errors_typed_error_keeps_reason_and_field(channel: grpc.aio.Channel, kind: str) -> None:
    raised = await failure(channel, "field", kind)
    assert raised.code() is grpc.StatusCode.INVALID_ARGUMENT
    error = status.from_rpc_error(raised)
    assert isinstance(error, InvalidArgument)
    assert (error.reason, error.metadata) == ("INVALID_FIELD", {"param": "messages[0].role"})


@pytest.mark.parametrize("kind", KINDS)
async def test_errors_retry_delay_travels(channel: grpc.aio.Channel, kind: str) -> None:
    raised = await failure(channel, "later", kind)
    error = status.from_rpc_error(raised)
    assert (error.reason, error.retry_after_s) == ("QUEUE_FULL", 1.5)
    assert ("retry-after", "2") in tuple(raised.trailing_metadata() or ())


@pytest.mark.parametrize("kind", KINDS)
async def test_errors_unknown_exception_is_internal_and_its_text_hidden(channel: grpc.aio.Channel, kind: str) -> None:
    raised = await failure(channel, "bug", kind)
    assert raised.code() is grpc.StatusCode.INTERNAL
    assert "hunter2" not in str(raised)


async def test_stream_client_cancel_reaches_the_handler(echo: Echo, channel: grpc.aio.Channel) -> None:
    call = caller(channel, "Stream", "unary_stream")(StringValue(value="a wait"), timeout=30)
    assert (await call.read()).value == "A"
    call.cancel()
    await asyncio.wait_for(echo.cancelled.wait(), 5)


async def test_health_follows_readiness_and_draining(echo: Echo, channel: grpc.aio.Channel) -> None:
    stub, request = health_pb2_grpc.HealthStub(channel), health_pb2.HealthCheckRequest(service=NAME)
    assert (await stub.Check(request, timeout=5)).status == health_pb2.HealthCheckResponse.SERVING
    assert echo.state is not None
    await echo.state.start_draining()
    await echo.state.set_ready(True)
    assert (await stub.Check(request, timeout=5)).status == health_pb2.HealthCheckResponse.NOT_SERVING


async def test_stop_lets_a_running_stream_finish(echo: Echo, channel: grpc.aio.Channel) -> None:
    call = caller(channel, "Talk", "stream_stream")(timeout=30)
    await call.write(StringValue(value="one"))
    assert (await call.read()).value == "ONE"
    echo.stop.set()
    await call.write(StringValue(value="two"))
    assert (await call.read()).value == "TWO"
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF


async def test_metrics_count_calls_by_code() -> None:
    registry, service = new_registry(), Echo(ServerSettings())
    task = asyncio.ensure_future(service.serve(registry))
    await service.started.wait()
    assert service.state is not None
    async with connect(f"127.0.0.1:{service.state.port}") as channel:
        await failure(channel, "field", "unary_unary")
    service.stop.set()
    await task
    labels = {"method": f"/{NAME}/Unary", "code": "INVALID_ARGUMENT"}
    assert registry.get_sample_value("inferway_rpc_handled_total", labels) == 1
    assert registry.get_sample_value("inferway_rpc_in_flight", {"method": f"/{NAME}/Unary"}) == 0


async def test_serve_port_taken_is_a_config_error(echo: Echo) -> None:
    assert echo.state is not None
    second = Echo(ServerSettings(port=echo.state.port))
    with pytest.raises(ConfigError, match="cannot listen"):
        await second.serve(new_registry())


async def test_serve_background_failure_ends_the_service() -> None:
    async def fail(_state: object) -> None:
        raise RuntimeError("lost my mind")

    service = Echo(ServerSettings())
    service._run = fail  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="lost my mind"):
        await asyncio.wait_for(service.serve(new_registry()), 10)


def test_status_field_error_has_one_error_info_and_the_violation() -> None:
    details = [detail.TypeName() for detail in status.to_status(FieldError("n", "must be 1")).details]
    assert details == ["google.rpc.ErrorInfo", "google.rpc.BadRequest"]


def test_metrics_server_answers_text() -> None:
    from services.kit.metrics import MetricsServer

    server = MetricsServer(new_registry(), "127.0.0.1", 0)
    server.start()
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=5) as answer:
            assert b"process_resident_memory_bytes" in answer.read()
    finally:
        server.stop()


def test_metrics_server_hangs_up_on_a_silent_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "SILENCE_S", 0.05)
    server = metrics.MetricsServer(new_registry(), "127.0.0.1", 0)
    server.start()
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as silent:
            assert silent.recv(1) == b""
    finally:
        server.stop()


async def test_headers_as_long_as_the_edge_passes_are_never_refused_by_lot(channel: grpc.aio.Channel) -> None:
    metadata = (("x-long", "x" * 60 * 1024),)
    for _ in range(8):
        answer = await caller(channel, "Unary", "unary_unary")(StringValue(value="ok"), timeout=5, metadata=metadata)
        assert answer.value == "OK"


async def test_eager_keepalive_pings_do_not_end_a_quiet_stream(echo: Echo) -> None:
    """With gRPC's own rules the server would say "too many pings" after three of them, which take as many seconds."""
    assert echo.state is not None
    eager = (("grpc.keepalive_time_ms", 100), ("grpc.keepalive_permit_without_calls", 1), ("grpc.http2.max_pings_without_data", 0))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{echo.state.port}", options=eager) as channel:
        call = caller(channel, "Stream", "unary_stream")(StringValue(value="wait"), timeout=30)
        ended, _ = await asyncio.wait({asyncio.ensure_future(call.code())}, timeout=4.5)
        assert not ended
        call.cancel()
