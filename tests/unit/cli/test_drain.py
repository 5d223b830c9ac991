"""`inferway drain` and `uncordon` ask the scheduler for what was typed and say what came of it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from typer.testing import CliRunner

from cli.main import app
from deploy.local.ports import PortPlan
from inferway.scheduler.v1 import scheduler_pb2 as pb
from inferway.scheduler.v1 import scheduler_pb2_grpc
from services.kit.errors import NotFound
from tests.harness.ports import free_port


class ScriptedControlPlane(scheduler_pb2_grpc.ControlPlaneServicer):
    """Knows the replica m-0 on the node n, and keeps what it was asked."""

    def __init__(self) -> None:
        self.drains: list[pb.DrainRequest] = []
        self.uncordons: list[str] = []

    def Drain(self, request: pb.DrainRequest, context: Any) -> pb.DrainResponse:
        self.drains.append(request)
        if (request.replica_id or request.node_id) not in ("m-0", "n"):
            context.abort(grpc.StatusCode.NOT_FOUND, "there is no such thing")
        return pb.DrainResponse(replica_ids=["m-0"])

    def Uncordon(self, request: pb.UncordonRequest, context: Any) -> pb.UncordonResponse:
        self.uncordons.append(request.node_id)
        return pb.UncordonResponse()


@pytest.fixture
def plane() -> ScriptedControlPlane:
    return ScriptedControlPlane()


@pytest.fixture
def invoke(plane: ScriptedControlPlane, tmp_path: Path) -> Iterator[CliRunner]:
    """A command line of a mesh whose scheduler is scripted."""
    offset = PortPlan.from_base(2000).scheduler_grpc - 2000
    port = free_port()
    with ThreadPoolExecutor(1) as threads:
        server = grpc.server(threads)
        scheduler_pb2_grpc.add_ControlPlaneServicer_to_server(plane, server)
        server.add_insecure_port(f"127.0.0.1:{port}")
        server.start()
        yield CliRunner(env={"INFERWAY_HOME": str(tmp_path), "INFERWAY_PORT_BASE": str(port - offset), "COLUMNS": "200"})
        server.stop(None).wait()


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        (["m-0"], pb.DrainRequest(replica_id="m-0")),
        (["m-0", "--timeout-s", "0"], pb.DrainRequest(replica_id="m-0", timeout_s=0)),
        (["--node", "n", "--timeout-s", "7"], pb.DrainRequest(node_id="n", timeout_s=7)),
    ],
)
def test_drain_asks_for_what_was_typed(
    invoke: CliRunner, plane: ScriptedControlPlane, arguments: list[str], asked: pb.DrainRequest
) -> None:
    result = invoke.invoke(app, ["drain", *arguments])

    assert (result.exit_code, plane.drains) == (0, [asked])
    assert "Draining: m-0." in result.output
    assert ("inferway uncordon n" in result.output) == ("--node" in arguments)


def test_drain_of_what_nobody_knows_is_not_found(invoke: CliRunner) -> None:
    assert isinstance(invoke.invoke(app, ["drain", "other"]).exception, NotFound)


def test_uncordon_asks_for_the_node(invoke: CliRunner, plane: ScriptedControlPlane) -> None:
    result = invoke.invoke(app, ["uncordon", "n"])

    assert (result.exit_code, plane.uncordons) == (0, ["n"])
