"""Shows the steps of a long command: a spinner with the time that runs on a terminal, one line per step elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from deploy.local.progress import Step


class LiveProgress:
    """Implements deploy.local.progress.Progress with rich; used as a context manager round the command."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars = Progress(
            SpinnerColumn(finished_text="[green]✓[/]"),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.fields[detail]}[/]"),
            console=console,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> "LiveProgress":
        self._bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bars.stop()

    @contextmanager
    def step(self, name: str) -> Iterator[Step]:
        """Show `name` until the block ends."""
        task = self._bars.add_task(name, total=1, detail="")
        begun = time.monotonic()
        yield _Bar(self._bars, task)
        self._bars.update(task, completed=1, detail="")
        if not self._console.is_terminal:
            self._console.print(f"✓ {name} ({time.monotonic() - begun:.1f} s)", highlight=False)


class _Bar:
    def __init__(self, bars: Progress, task: TaskID) -> None:
        self._bars = bars
        self._task = task

    def say(self, detail: str) -> None:
        self._bars.update(self._task, detail=detail[:100].replace("[", "\\["))
