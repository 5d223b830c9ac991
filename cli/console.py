"""Where commands print: results to standard output, everything else to standard error."""

from rich.console import Console


def console() -> Console:
    """For results."""
    return Console()


def errors_console() -> Console:
    """For progress and failures, so that results can be piped."""
    return Console(stderr=True)
