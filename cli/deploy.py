"""`inferway deploy`: say which model shall run, and how many replicas of it."""

import asyncio
from typing import Annotated

import typer

from cli.clients import MAX_COUNT, control_plane
from cli.console import console
from cli.errors import CommandError
from cli.settings import current
from cli.settled import settled
from inferway.common.v1 import registry_pb2

_DRAIN_TIMEOUT_S = 30


def deploy(
    model: Annotated[str, typer.Argument(help="A model of the store; see `inferway model list`.")],
    replicas: Annotated[int, typer.Option("--replicas", "-n", min=0, max=MAX_COUNT, help="How many replicas shall run.")] = 1,
    version: Annotated[str, typer.Option(help="Version of the weights; the newest when not given.")] = "",
    drain_timeout_s: Annotated[
        int, typer.Option(min=0, max=MAX_COUNT, help="Seconds for a removed replica to finish its work.")
    ] = _DRAIN_TIMEOUT_S,
    setting: Annotated[list[str] | None, typer.Option("--set", help="Engine setting as name=value; may be repeated.")] = None,
    wait: Annotated[bool, typer.Option(help="Wait until the replicas are ready.")] = True,
) -> None:
    """Create or change the deployment of a model."""
    wanted = registry_pb2.Deployment(
        model=model,
        model_version=version,
        num_replicas=replicas,
        engine_settings=parse_settings(setting or []),
        drain_timeout_s=drain_timeout_s,
    )
    asyncio.run(_deploy(wanted, wait=wait))


def parse_settings(pairs: list[str]) -> dict[str, str]:
    """`name=value` pairs as a mapping; CommandError names the first that is not one."""
    parsed = dict[str, str]()
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise CommandError(f"--set needs name=value, not {pair!r}.")
        parsed[name] = value
    return parsed


async def _deploy(wanted: registry_pb2.Deployment, *, wait: bool) -> None:
    async with control_plane(current()) as plane:
        stored = await plane.deploy(wanted)
        if wait:
            await settled(plane, wanted.model)
    console().print(f"{stored.model}: {stored.num_replicas} desired (change {stored.generation}).", highlight=False)
