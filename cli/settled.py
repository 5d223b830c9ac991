"""Waits until a deployment is as desired, and says how far it is."""

import asyncio

from cli.clients import ControlPlane
from cli.console import errors_console
from cli.errors import CommandError
from cli.live_progress import LiveProgress

TIMEOUT_S = 300.0
_POLL_S = 0.3


async def settled(plane: ControlPlane, model: str) -> None:
    """Return when exactly the desired number of replicas is ready; CommandError after TIMEOUT_S."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + TIMEOUT_S
    with LiveProgress(errors_console()) as progress, progress.step(f"Replicas of {model}") as step:
        while True:
            found = next((one for one in await plane.deployments() if one.deployment.model == model), None)
            if found is None:
                raise CommandError(f"{model} is not deployed any more.", "Somebody removed it; run `inferway deploy` again.")
            wanted = found.deployment.num_replicas
            if found.num_ready == wanted and not (found.num_starting or found.num_draining or found.problem):
                return
            said = f"{found.num_ready} of {wanted} ready, {found.num_draining} draining. {found.problem}".strip()
            step.say(said)
            if loop.time() > deadline:
                raise CommandError(f"{model} is not as desired after {TIMEOUT_S:.0f} s: {said}", "Run `inferway logs node` to see why.")
            await asyncio.sleep(_POLL_S)
