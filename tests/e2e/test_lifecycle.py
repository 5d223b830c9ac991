"""From an empty home to a running mesh and back: what `inferway up`, `status` and `down` promise, with real processes."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local import preflight
from deploy.local.process import ProcessIdentity
from tests.harness import smollm
from tests.harness.eventually import eventually
from tests.harness.mesh import MODEL, Mesh, running_mesh

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

QUICK = {"INFERWAY_ENGINE_RUNNER": "sim", "INFERWAY_LOCAL_BROKER": "tansu", "INFERWAY_ENGINE_SIM_EOS_EVERY": "20"}


@pytest.fixture(scope="module")
def models() -> Path:
    """A model store that is filled already."""
    smollm.smollm()
    return smollm.HOME / "models"


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory, models: Path) -> Iterator[Mesh]:
    with running_mesh(tmp_path_factory.mktemp("home"), models, **QUICK) as mesh:
        yield mesh


def processes(mesh: Mesh) -> list[ProcessIdentity]:
    """The supervisor and everything below it."""
    status = mesh.status()
    return [status.supervisor, *status.processes]


async def all_gone(left: list[ProcessIdentity]) -> None:
    await eventually(lambda: not any(one.is_alive for one in left))


def test_up_a_second_time_changes_nothing_and_prints_the_same(mesh: Mesh) -> None:
    first, before = mesh.up(), processes(mesh)

    second = mesh.up()

    assert second == first
    assert mesh.key in second and mesh.base_url in second
    assert set(before) <= set(processes(mesh))


def test_printed_curl_line_streams_an_answer(mesh: Mesh) -> None:
    (line,) = [line for line in mesh.up().splitlines() if line.startswith("curl ")]

    done = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=60, check=True)

    events = [event for event in done.stdout.split("\n\n") if event]
    assert len(events) > 2 and all(event.startswith("data: ") for event in events)
    assert events[-1] == "data: [DONE]"


def test_status_of_a_running_mesh_is_ready_and_names_every_part(mesh: Mesh) -> None:
    mesh.up()

    done = mesh.run("status", "--json")

    report = json.loads(done.stdout)
    assert (done.returncode, report["ready"], report["broker"], report["runner"]) == (0, True, "Tansu", "sim")
    assert {one["service"] for one in report["services"]} == {
        "etcd",
        "tansu",
        "scheduler",
        "metering",
        "router",
        "gateway",
        "node",
        "envoy",
    }
    assert [one["state"] for one in report["replicas"]] == ["ready", "ready"]


def test_smoke_through_the_edge_equals_the_ledger(mesh: Mesh) -> None:
    mesh.up()

    done = mesh.run("smoke", "--json", "--requests", "12", "--concurrency", "4")

    report = json.loads(done.stdout)
    assert (report["requests"], report["ok"], report["failed"], report["ledger_mismatches"]) == (12, 12, [], [])
    assert report["ledger_equal"] and done.returncode == 0
    assert set(report["by_surface"]) == {"rest", "rest-stream", "grpc"}


async def test_supervisor_killed_takes_everything_with_it_and_up_starts_anew(mesh: Mesh) -> None:
    key = mesh.key
    before = processes(mesh)

    mesh.status().supervisor.signal(signal.SIGKILL)
    await all_gone(before)
    preflight.check_ports(mesh.ports.listeners())
    mesh.up()

    assert mesh.key == key
    assert not set(before) & set(processes(mesh))


async def test_down_stops_everything_and_frees_every_port(mesh: Mesh) -> None:
    before = processes(mesh)

    done = mesh.run("down")

    assert done.returncode == 0
    assert not any(one.is_alive for one in before)
    preflight.check_ports(mesh.ports.listeners())
    assert mesh.run("status").returncode == 1
    mesh.up()


def test_up_on_a_busy_port_names_it_and_leaves_nothing_behind(mesh: Mesh) -> None:
    mesh.run("down")
    with socket.create_server(("127.0.0.1", mesh.ports.router_grpc)):
        done = mesh.run("up")

    assert done.returncode == 1
    assert f"Port {mesh.ports.router_grpc} (router grpc" in done.stderr and "INFERWAY_PORT_BASE" in done.stderr
    preflight.check_ports(mesh.ports.listeners())
    mesh.up()


def test_two_meshes_with_their_own_home_and_ports_run_side_by_side(mesh: Mesh, models: Path, tmp_path: Path) -> None:
    mesh.up()

    with running_mesh(tmp_path / "other", models, **QUICK) as other:
        assert other.run("chat", "hi", "--max-tokens", "3").returncode == 0
        assert mesh.run("chat", "hi", "--max-tokens", "3").returncode == 0
        assert not set(processes(mesh)) & set(processes(other))
        assert other.key != mesh.key


async def test_deployment_with_a_bad_setting_shows_in_status_until_it_is_repaired(mesh: Mesh) -> None:
    mesh.up()
    assert mesh.run("deploy", MODEL, "--replicas", "1", "--set", "no_such_setting=1", "--no-wait").returncode == 0
    await eventually(lambda: "NO_SUCH_SETTING" in mesh.run("status").stdout)

    repaired = mesh.run("deploy", MODEL, "--replicas", "2")

    assert repaired.returncode == 0, repaired.stderr
    assert mesh.run("status").returncode == 0


def test_scaled_to_none_and_back_the_mesh_stays_well(mesh: Mesh) -> None:
    mesh.up()
    assert mesh.run("scale", MODEL, "0").returncode == 0
    refused = mesh.run("chat", "hi")
    second = mesh.run("up")
    assert mesh.run("scale", MODEL, "2").returncode == 0

    assert refused.returncode == 1 and "503" in refused.stderr
    assert second.returncode == 0, second.stderr
    assert mesh.run("chat", "hi", "--max-tokens", "2").returncode == 0
