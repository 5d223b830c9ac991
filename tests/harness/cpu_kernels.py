"""The native kernels for tests: which builds run on this machine, and one folder of built libraries for all of them."""

from pathlib import Path

from services.engine.cpu_runner.instruction_set import InstructionSet, cpu_features
from services.engine.cpu_runner.kernel_build import library
from services.engine.cpu_runner.native import Kernels
from tests.harness.smollm import HOME

LEVELS = tuple(level for level in InstructionSet if level.needs <= cpu_features())
"""Builds that this CPU runs, the fastest first."""


def share_kernels(home: Path) -> Path:
    """Let `home` use the libraries that the tests have built already."""
    (HOME / "kernels").mkdir(parents=True, exist_ok=True)
    (home / "kernels").symlink_to(HOME / "kernels")
    return home


def kernels(level: InstructionSet) -> Kernels:
    return Kernels(library(HOME, level))
