"""Where commands print: results to standard output, everything else to standard error."""

import sys

from rich.console import Console

_PIPED_WIDTH = 400  # nothing is cut or wrapped for a program that reads


def console() -> Console:
    """For results."""
    return Console(width=None if sys.stdout.isatty() else _PIPED_WIDTH)


def errors_console() -> Console:
    """For progress and failures, so that results can be piped."""
    return Console(stderr=True)
