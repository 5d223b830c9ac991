"""`inferway up`: start the mesh, prove that it answers, print how to talk to it."""

import asyncio
import os
from typing import Annotated

import typer

from cli.console import console, errors_console
from cli.live_progress import LiveProgress
from cli.settings import overridden
from deploy.local.settings import BrokerChoice, Runner, Settings


def up(
    runner: Annotated[Runner | None, typer.Option(help="Engine back end: torch, native CPU kernels, or a stand-in (sim).")] = None,
    replicas: Annotated[int | None, typer.Option(min=1, help="Replicas of the demo model at the first start (default 2).")] = None,
    port_base: Annotated[int | None, typer.Option(help="First port of the mesh (default 8400).")] = None,
    broker: Annotated[BrokerChoice | None, typer.Option(help="Broker to start (default: Apache Kafka where it can run).")] = None,
) -> None:
    """Start everything on this machine and print how to talk to it. Does nothing but verify when it runs already."""
    from deploy.local.up import up as bring_up  # brings the model importer along, which other commands do without

    environ = overridden(os.environ, runner=runner, replicas=replicas, port_base=port_base, broker=broker)
    with LiveProgress(errors_console()) as progress:
        ready = asyncio.run(bring_up(Settings.from_environ(environ), environ, progress))
    from cli.welcome import welcome

    console().print(welcome(ready), highlight=False, soft_wrap=True, markup=False)
