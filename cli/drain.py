"""`inferway drain` and `inferway uncordon`: take work away from a replica or a node, and let a node have replicas again."""

import asyncio
from typing import Annotated

import typer

from cli.clients import MAX_COUNT, control_plane
from cli.console import console
from cli.settings import current
from inferway.scheduler.v1 import scheduler_pb2


def drain(
    replica: Annotated[str, typer.Argument(help="A replica; another one is started in its place.")] = "",
    node: Annotated[str, typer.Option(help="All replicas of this node, which gets no new ones.")] = "",
    timeout_s: Annotated[
        int | None, typer.Option(min=0, max=MAX_COUNT, help="Seconds for running work; the deployment's when not given.")
    ] = None,
) -> None:
    """Let running work finish and give no more to a replica, or to all replicas of a node."""
    if bool(replica) == bool(node):
        raise typer.BadParameter("name either a replica or a node with --node")
    request = scheduler_pb2.DrainRequest(timeout_s=timeout_s)
    if node:
        request.node_id = node
    else:
        request.replica_id = replica
    drained = asyncio.run(_drain(request))
    console().print(f"Draining: {', '.join(drained) or 'nothing'}.", highlight=False)
    if node:
        console().print(f"{node} gets no new replicas until `inferway uncordon {node}`.", highlight=False)


def uncordon(node: Annotated[str, typer.Argument(help="A node that was drained.")]) -> None:
    """Let a drained node get replicas again."""
    asyncio.run(_uncordon(node))
    console().print(f"{node} may get replicas again.", highlight=False)


async def _drain(request: scheduler_pb2.DrainRequest) -> list[str]:
    async with control_plane(current()) as plane:
        return await plane.drain(request)


async def _uncordon(node: str) -> None:
    async with control_plane(current()) as plane:
        await plane.uncordon(node)
