"""One stream per gateway; what a stream held goes on or is given back."""

from __future__ import annotations

import pytest

from services.kit.errors import Unavailable
from services.router.dispatcher import Dispatcher
from services.router.want import HeldGrant
from tests.harness.router_parts import MODEL, AdmissionBench, outcomes, want


class Bench(AdmissionBench):
    def __init__(self) -> None:
        super().__init__()
        self.dispatcher = Dispatcher(self.admission, max_backlog=10)
        self.up("a", max_num_sequences=2)


def test_dispatcher_second_stream_of_a_gateway_replaces_the_first() -> None:
    bench = Bench()
    first = bench.dispatcher.open("g", [])
    other = bench.dispatcher.open("other", [])
    bench.dispatcher.want(first, want("kept"))
    bench.dispatcher.want(first, want("dropped"))
    second = bench.dispatcher.open("g", [HeldGrant("kept", "a", MODEL)])
    assert (first.closed, second.closed, other.closed) == (True, False, False)
    assert {grant.want_id: grant.owner for grant in bench.ledger} == {"kept": second.stream_id}


def test_dispatcher_closed_stream_gets_no_grant() -> None:
    bench = Bench()
    stream = bench.dispatcher.open("g", [])
    bench.dispatcher.close(stream)
    bench.dispatcher.close(stream)
    bench.dispatcher.want(stream, want())
    assert (len(bench.ledger), outcomes(stream)) == (0, [])


async def test_dispatcher_drain_closes_all_streams_and_takes_no_new_ones() -> None:
    bench = Bench()
    stream = bench.dispatcher.open("g", [])
    bench.dispatcher.want(stream, want())
    await bench.dispatcher.drain(0.0)
    assert stream.closed
    assert len(bench.ledger) == 0
    with pytest.raises(Unavailable) as raised:
        bench.dispatcher.open("h", [])
    assert raised.value.reason == "DRAINING"
