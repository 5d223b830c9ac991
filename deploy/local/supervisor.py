"""The one long-lived process behind a local mesh: it starts the children, restarts the dead, and takes all down with it."""

import asyncio
from collections.abc import Callable, Sequence

from deploy.local.child import Child, Clock, Launch
from deploy.local.child_spec import ChildSpec, levels
from deploy.local.mesh_status import ChildStatus

HOUSEKEEPING_INTERVAL_S = 3.0


class Supervisor:
    """Owns every child task. `publish` receives each change; `housekeep` runs every HOUSEKEEPING_INTERVAL_S."""

    def __init__(
        self,
        specs: Sequence[ChildSpec],
        launch: Launch,
        clock: Clock,
        publish: Callable[[tuple[ChildStatus, ...]], None],
        housekeep: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._publish = publish
        self._housekeep = housekeep
        self._changed = asyncio.Event()
        self._children: dict[str, Child] = {}
        self._levels = levels(specs)
        for spec in (spec for level in self._levels for spec in level):
            dependencies = [self._children[name] for name in sorted(spec.after)]
            self._children[spec.name] = Child(spec, dependencies, launch, clock, self._changed.set)

    def statuses(self) -> tuple[ChildStatus, ...]:
        """Every child in start order."""
        return tuple(child.status() for child in self._children.values())

    async def run(self, stop: asyncio.Event) -> None:
        """Start everything, keep it running until `stop`, then stop in reverse order of dependence."""
        async with asyncio.TaskGroup() as group:
            chores = [group.create_task(self._announce()), group.create_task(self._keep_house())]
            tasks = {name: group.create_task(child.run()) for name, child in self._children.items()}
            await stop.wait()
            for level in reversed(self._levels):
                leaving = [tasks[spec.name] for spec in level]
                for task in leaving:
                    task.cancel()
                await asyncio.wait(leaving)
            for chore in chores:
                chore.cancel()
        self._publish(self.statuses())

    async def _announce(self) -> None:
        while True:
            self._changed.clear()
            self._publish(self.statuses())
            await self._changed.wait()

    async def _keep_house(self) -> None:
        while True:
            await self._clock.sleep(HOUSEKEEPING_INTERVAL_S)
            self._housekeep()
