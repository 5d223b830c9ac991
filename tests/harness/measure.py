"""What the parts of a mesh say about themselves: the engines' load feeds and everybody's /metrics."""

from __future__ import annotations

import grpc
import httpx2 as httpx

from inferway.engine.v1 import engine_pb2, engine_pb2_grpc
from services.kit.channel import connect
from tests.harness.eventually import eventually
from tests.harness.mesh import MODEL, Mesh

READY = f'inferway_router_replicas{{model="{MODEL}",state="ready"}}'
IN_WORK = "inferway_gateway_requests_in_work"
OUTBOX = "inferway_outbox_rows"


async def loads(mesh: Mesh) -> list[engine_pb2.WatchLoadResponse]:
    """What every replica says about itself now; one that is about to end may have nothing more to say."""
    found = []
    for port in mesh.ports_of_replicas().values():
        async with connect(f"127.0.0.1:{port}") as channel:
            call = engine_pb2_grpc.EngineStub(channel).WatchLoad(engine_pb2.WatchLoadRequest(), timeout=5)
            if (load := await call.read()) is not grpc.aio.EOF:
                found.append(load)
            call.cancel()
    return found


async def num_running(mesh: Mesh) -> int:
    """Sequences that run on all replicas together."""
    return sum(load.num_running for load in await loads(mesh))


async def is_idle(mesh: Mesh) -> bool:
    """Whether no replica runs, holds back or remembers anything."""
    return all((load.num_running, load.num_waiting, load.num_used_blocks) == (0, 0, 0) for load in await loads(mesh))


async def scrape(metrics_port: int) -> dict[str, float]:
    """Series and their values."""
    async with httpx.AsyncClient(timeout=10) as client:
        text = (await client.get(f"http://127.0.0.1:{metrics_port}/metrics")).text
    pairs = (line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
    return {series: float(value) for series, value in pairs}


async def nothing_waits(mesh: Mesh) -> bool:
    """Whether the ledger has every record of the gateway and of the replicas that run; False while one of them cannot be asked."""
    ports = (mesh.ports.gateway_metrics, *mesh.ports_of_replicas("METRICS_PORT").values())
    try:
        return all([(await scrape(port)).get(OUTBOX) == 0 for port in ports])
    except httpx.TransportError:
        return False


async def num_good_checks(mesh: Mesh) -> int:
    """How often the edge has found its gateway healthy so far."""
    async with httpx.AsyncClient(timeout=10) as client:
        text = (await client.get(f"http://127.0.0.1:{mesh.ports.envoy_admin}/stats?filter=cluster.gateway.health_check.success")).text
    return int(text.rsplit(" ", 1)[1])


async def at_rest(mesh: Mesh, num_replicas: int = 2) -> None:
    """Waits until the edge serves, the router can use that many replicas and nobody has work: what an earlier test broke has come back.

    The edge serves when it has found the gateway healthy since: before that, checks that failed may still add up to an unhealthy one.
    """
    num_before: list[int] = []

    async def rests() -> bool:
        try:
            async with httpx.AsyncClient(timeout=10) as client:
                healthy = (await client.get(f"{mesh.base_url}/healthz")).status_code == 200
            ready = (await scrape(mesh.ports.router_metrics)).get(READY)
            in_work = (await scrape(mesh.ports.gateway_metrics)).get(IN_WORK)
            num_before.append(await num_good_checks(mesh))
            found = (healthy, ready, in_work, len(mesh.replicas()), num_before[-1] > num_before[0])
            return found == (True, num_replicas, 0, num_replicas, True) and await is_idle(mesh)
        except (httpx.TransportError, grpc.aio.AioRpcError):
            return False

    await eventually(rests, 60)
