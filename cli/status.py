"""`inferway status`: what runs, where, and whether it is well."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from cli.clients import control_plane
from cli.console import console
from cli.errors import CommandError
from cli.mesh_report import ChildReport, DeploymentReport, MeshReport, Placement, ReplicaReport, make
from cli.settings import current
from cli.tables import table
from cli.times import span
from deploy.local import running
from deploy.local.mesh_status import MeshStatus
from deploy.local.settings import Settings
from inferway.common.v1 import registry_pb2
from inferway.scheduler.v1 import scheduler_pb2
from services.kit.errors import InferwayError

_MAX_REASON = 100  # the whole text is in --json and in the logs
_STYLES = {"ready": "green", "starting": "yellow", "waiting": "yellow", "draining": "yellow"}


def status(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Show the processes of the mesh, the replicas and the broker. Exit status 1 when a part is not ready."""
    settings = current()
    found = running.find(settings.home)
    if found is None:
        raise CommandError(f"No mesh runs in {settings.home.root}.", "Run `inferway up` to start one.")
    report = asyncio.run(_report(settings, found))
    if as_json:
        console().print(json.dumps(asdict(report)), highlight=False, markup=False, soft_wrap=True)
    else:
        _show(report)
    if not report.ready:
        raise typer.Exit(1)


async def _report(settings: Settings, found: MeshStatus) -> MeshReport:
    return await make(settings, found, await _placement(settings))


async def _placement(settings: Settings) -> Placement:
    """Deployments and replicas as the scheduler sees them."""
    try:
        async with control_plane(settings) as plane:
            deployments, assignments = await plane.deployments(), await plane.assignments()
    except InferwayError:
        return Placement(answered=False)
    return Placement(True, tuple(map(_deployment, deployments)), tuple(map(_replica, assignments)))


def _deployment(one: scheduler_pb2.DeploymentStatus) -> DeploymentReport:
    return DeploymentReport(one.deployment.model, one.deployment.num_replicas, one.num_ready, one.problem)


def _replica(one: scheduler_pb2.AssignmentStatus) -> ReplicaReport:
    state = registry_pb2.ReplicaState.Name(one.state).removeprefix("REPLICA_STATE_").lower()
    return ReplicaReport(
        replica=one.assignment.replica_id,
        model=one.assignment.model,
        version=one.assignment.model_version or "newest",
        node=one.assignment.node_id,
        state="not registered" if state == "unspecified" else state,
        address=one.address,
        restarts=one.process.num_restarts,
        last_exit=one.process.last_exit,
        runner=one.runner,
    )


def _show(report: MeshReport) -> None:
    out = console()
    out.print(
        f"[bold]Inferway {report.versions['inferway']}[/] at {report.base_url}/v1 · home {report.home}", highlight=False, soft_wrap=True
    )
    out.print(f"Broker: {report.broker} at {report.kafka_bootstrap} · engine runner: {report.runner}", highlight=False)
    out.print(_children(report.services))
    out.print(_replica_table(report.replicas))
    for runner in sorted({one.runner for one in report.replicas if one.runner}):
        out.print(f"Numbers: {escape(runner)}", highlight=False, soft_wrap=True)
    for one in report.deployments:
        if one.problem or one.ready != one.desired:
            text = f"{one.model}: {one.ready} of {one.desired} replicas ready. {one.problem}"
            out.print(f"[bold red]✗[/] {escape(text)}", highlight=False, soft_wrap=True)
    parts = " · ".join(f"{name} {version}" for name, version in report.versions.items() if name != "inferway")
    out.print(f"[dim]{parts}[/]", highlight=False)


def _children(children: Sequence[ChildReport]) -> Table:
    rows = table(("service", "state", "health", "pid", "ports", "since", "restarts", "last exit"))
    for one in children:
        ports = " ".join(f"{name} {port}" for name, port in one.ports.items())
        health = "[green]ok[/]" if one.healthy else "[red]no answer[/]"
        row = (
            one.service,
            _state(one.state),
            health,
            str(one.pid or ""),
            ports,
            span(one.since_s),
            str(one.restarts),
            _short(one.last_exit),
        )
        rows.add_row(*row)
    return rows


def _replica_table(replicas: Sequence[ReplicaReport]) -> Table:
    rows = table(("replica", "state", "model", "version", "node", "address", "restarts", "last exit"))
    for one in replicas:
        rows.add_row(
            one.replica, _state(one.state), one.model, one.version, one.node, one.address, str(one.restarts), _short(one.last_exit)
        )
    return rows


def _state(state: str) -> str:
    style = _STYLES.get(state, "red")
    return f"[{style}]{state}[/]"


def _short(text: str) -> str:
    return escape(text if len(text) <= _MAX_REASON else text[: _MAX_REASON - 1] + "…")
