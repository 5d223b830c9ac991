"""Tables as every command prints them: no frame, and ids that are wrapped where a narrow terminal would cut them."""

from collections.abc import Sequence

from rich.table import Table


def table(titles: Sequence[str], numbers: Sequence[str] = ()) -> Table:
    """An empty table: text columns first, then right-aligned numbers."""
    made = Table(box=None)
    for title in titles:
        made.add_column(title, overflow="fold")
    for title in numbers:
        made.add_column(title, justify="right", no_wrap=True)
    return made
