"""`inferway logs`: what the processes of the mesh wrote."""

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from cli.console import console
from cli.errors import CommandError
from cli.settings import current

_POLL_S = 0.3
_COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "bright_cyan", "bright_green", "bright_magenta")


def logs(
    names: Annotated[list[str] | None, typer.Argument(help="Parts to show, for example gateway kafka; all when none is named.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on showing new lines.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="Lines of each part to begin with.")] = 20,
) -> None:
    """Show the logs, each line with the part that wrote it."""
    directory, wanted = current().home.logs, names or []
    tails = {file: Tail(file) for file in _files(directory, wanted)}
    for number, tail in enumerate(tails.values()):
        _show(tail.name, tail.last(lines), number)
    while follow:
        time.sleep(_POLL_S)
        for file in _files(directory, wanted):
            tails.setdefault(file, Tail(file))
        for number, tail in enumerate(tails.values()):
            _show(tail.name, tail.new(), number)


class Tail:
    """Reads whole lines of one growing file; begins anew when the file was rotated."""

    def __init__(self, file: Path) -> None:
        self.name = file.stem
        self._file = file
        self._position = 0
        self._rest = b""

    def last(self, count: int) -> list[str]:
        """The last `count` lines so far; `new` goes on behind them."""
        lines = self.new()
        return lines[-count:] if count else []

    def new(self) -> list[str]:
        """The lines written since the last call."""
        if self._file.stat().st_size < self._position:
            self._position, self._rest = 0, b""
        with self._file.open("rb") as file:
            file.seek(self._position)
            data = self._rest + file.read()
            self._position = file.tell()
        *lines, self._rest = data.split(b"\n")
        return [line.decode("utf-8", "replace") for line in lines]


def _files(directory: Path, names: list[str]) -> list[Path]:
    there = sorted(directory.glob("*.log"))
    if not there:
        raise CommandError(f"There are no logs in {directory}.", "Run `inferway up` first.")
    wanted = [file for file in there if not names or file.stem in names]
    unknown = set(names) - {file.stem for file in there}
    if unknown:
        known = ", ".join(file.stem for file in there)
        raise CommandError(f"There is no log of {', '.join(sorted(unknown))}.", f"Choose from: {known}.")
    return wanted


def _show(name: str, lines: list[str], number: int) -> None:
    out = console()
    for line in lines:
        out.print(Text.assemble((f"{name} ", _COLOURS[number % len(_COLOURS)]), line), soft_wrap=True, highlight=False)
