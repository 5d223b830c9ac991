"""The link to the router at the moments that are hard to hit from outside."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from services.gateway.clients.dispatch import DispatchLink
from services.gateway.dispatch import GrantOutcome, Want
from services.kit.channel import connect
from tests.harness.dispatch_router import WAIT_S, DispatchRouter
from tests.harness.eventually import eventually
from tests.harness.tcp_proxy import TcpProxy


@dataclass
class Line:
    """A link, and a wire to the router that can be cut and stalled."""

    link: DispatchLink
    wire: TcpProxy
    router: DispatchRouter


@pytest.fixture
async def line() -> AsyncIterator[Line]:
    router = DispatchRouter(r1="127.0.0.1:1")
    await router.start()
    wire = TcpProxy(router.address)
    await wire.mend()
    channel = connect(wire.endpoint)
    link = DispatchLink(channel, "gateway-test", away_s=WAIT_S)
    running = asyncio.create_task(link.run())
    yield Line(link, wire, router)
    running.cancel()
    await asyncio.wait({running})
    await channel.close()
    await wire.cut()
    await router.kill()


def want(want_id: str) -> Want:
    return Want(want_id, "tiny", "v1", "acme", 5, 3, 0, (), "req-1")


async def test_grant_given_back_while_the_hello_is_on_its_way_is_given_back_after_it(line: Line) -> None:
    for want_id in ("used", "kept"):
        await line.link.admit(want(want_id))
    line.wire.gate.clear()
    await line.wire.cut()
    await line.wire.mend()
    await eventually(lambda: line.wire.num_connections == 1, WAIT_S)
    line.link.done("used", GrantOutcome.FINISHED)
    line.wire.gate.set()
    hello = await line.router.until_hellos(2)
    if "used" in {held.want_id for held in hello.held_grants}:
        await line.router.until_done("used")
    assert "kept" in {held.want_id for held in hello.held_grants}
    assert "kept" not in line.router.dones


async def test_wants_of_a_link_that_was_never_up_wait_for_it(line: Line) -> None:
    line.wire.gate.clear()
    await line.wire.cut()
    await eventually(lambda: not line.link.connected, WAIT_S)
    waiting = asyncio.create_task(line.link.admit(want("early")))
    await line.wire.mend()
    line.wire.gate.set()
    async with asyncio.timeout(WAIT_S):
        assert (await waiting).replica_id == "r1"
