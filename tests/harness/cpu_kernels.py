"""The native kernels for tests: which builds run on this machine, and the one folder where `make setup`, `make up` and tests keep them."""

from contextlib import suppress
from pathlib import Path

from services.engine.cpu_runner.instruction_set import InstructionSet, cpu_features
from services.engine.cpu_runner.kernel_build import library

_HOME = Path(__file__).resolve().parents[2] / ".inferway"

LEVELS = tuple(level for level in InstructionSet if level.needs <= cpu_features())
"""Builds that this CPU runs, the fastest first."""


def share_kernels(home: Path) -> Path:
    """Let `home` use the libraries that there are already, and keep there what it builds; safe beside other test processes."""
    home.mkdir(parents=True, exist_ok=True)
    (_HOME / "kernels").mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        (home / "kernels").symlink_to(_HOME / "kernels")
    return home


def kernel_library(level: InstructionSet) -> Path:
    return library(_HOME, level)


def ready_made() -> dict[str, str]:
    """Tells processes with a home of their own where the library for this CPU is; nothing where no build runs here."""
    return {"INFERWAY_ENGINE_KERNELS": str(kernel_library(LEVELS[0]).parent)} if LEVELS else {}
