"""Builds the kernels ahead of the first start, as `make setup` and images do: `INFERWAY_HOME=... python -m services.engine.cpu_runner`."""

import argparse
import os
import time
from collections.abc import Sequence
from pathlib import Path

from services.engine.cpu_runner.instruction_set import InstructionSet, NoKernelsError, best_for, cpu_features
from services.engine.cpu_runner.kernel_build import find, library


def main(arguments: Sequence[str]) -> int:
    """Build what is missing and say so in one line; exit status 1 when there are no kernels then."""
    parser = argparse.ArgumentParser("python -m services.engine.cpu_runner", description=__doc__)
    parser.add_argument("--all", action="store_true", help="every build, whatever this machine's CPU runs: for images")
    every = parser.parse_args(arguments).all
    home = Path(os.environ.get("INFERWAY_HOME") or ".inferway")
    print("native kernels: ", end="", flush=True)
    try:
        print(", ".join(_make(home, level) for level in (InstructionSet if every else [best_for(cpu_features())])))
    except NoKernelsError as error:
        print(f"none, so torch serves, several times slower: {error}; to mend: {error.remedy}")
        return 1
    return 0


def _make(home: Path, level: InstructionSet) -> str:
    if find(home, level):
        return f"{level.display_name} is there"
    start = time.monotonic()
    library(home, level)
    return f"{level.display_name} built in {time.monotonic() - start:.0f} s"
