"""Turns every foreseen failure of a command into one sentence, what to do, and an exit status; never a traceback."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from rich.markup import escape

from cli.console import errors_console
from deploy.local.errors import LocalError
from services.kit.errors import InferwayError, PermissionDenied, Unauthenticated, Unavailable, Unimplemented

INTERRUPTED = 130


class CommandError(Exception):
    """A command cannot do what was asked. `problem` is one clear sentence, `remedy` the next step to take."""

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.remedy = remedy


@contextmanager
def reported() -> Iterator[None]:
    """Leave the process with a message instead of a traceback when something foreseen goes wrong inside the block."""
    try:
        yield
    except (CommandError, LocalError) as error:
        fail(error.problem, error.remedy)
    except InferwayError as error:
        fail(sentence(error.message), _remedy(error))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def fail(problem: str, remedy: str = "") -> NoReturn:
    """Print and leave with exit status 1."""
    errors_console().print(f"[bold red]✗[/] {escape(problem)}", highlight=False, soft_wrap=True)
    if remedy:
        errors_console().print(f"  {escape(remedy)}", highlight=False, soft_wrap=True)
    sys.exit(1)


def sentence(text: str) -> str:
    """Upper-case first letter, full stop at the end."""
    text = " ".join(text.split()) or "It failed without a reason"
    return text[0].upper() + text[1:] + ("" if text[-1] in ".!?" else ".")


def _remedy(error: InferwayError) -> str:
    if isinstance(error, Unavailable):
        return "Run `inferway status` to see what runs, or `inferway up` to start the mesh."
    if isinstance(error, Unauthenticated | PermissionDenied):
        return "Run `inferway up` to renew the keys of this mesh, or set INFERWAY_OPERATOR_KEY."
    if isinstance(error, Unimplemented):
        return "docs/architecture.md lists what is not served yet."
    return ""
