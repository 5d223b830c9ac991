"""`inferway scale`: change how many replicas of a model run."""

import asyncio
from typing import Annotated

import typer

from cli.clients import MAX_COUNT, control_plane
from cli.console import console
from cli.settings import current
from cli.settled import settled


def scale(
    model: Annotated[str, typer.Argument(help="A deployed model.")],
    replicas: Annotated[int, typer.Argument(min=0, max=MAX_COUNT, help="How many replicas shall run; 0 stops all.")],
    wait: Annotated[bool, typer.Option(help="Wait until it is so.")] = True,
) -> None:
    """Set the number of replicas; removed ones finish their work first."""
    asyncio.run(_scale(model, replicas, wait=wait))


async def _scale(model: str, replicas: int, *, wait: bool) -> None:
    async with control_plane(current()) as plane:
        stored = await plane.scale(model, replicas)
        if wait:
            await settled(plane, model)
    console().print(f"{stored.model}: {stored.num_replicas} desired (change {stored.generation}).", highlight=False)
