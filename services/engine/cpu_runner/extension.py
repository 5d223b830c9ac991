"""The kernels as an extension of torch: its sources and flags, and the process of its own that compiles and links them.

Replicas start this process and never import torch themselves. Usage: python -m services.engine.cpu_runner.extension INSTRUCTION_SET FOLDER
"""

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

from services.engine import kernels
from services.engine.cpu_runner.instruction_set import InstructionSet

NAME = "kernels"
NO_TORCH = 3
"""Exit status when torch cannot be imported; 1 stands for a compiler or linker that refused."""

_SOURCES = Path(kernels.__path__[0]) / "cpu"
_FLAGS = ("-std=c++20", "-O3", "-fPIC", "-pthread", "-ffp-contract=off", "-fno-math-errno", "-Wno-psabi")
_LINKER_FLAGS = ("-pthread", "-Wl,--as-needed")
"""The kernels use nothing of torch: libraries that it adds to the command line are not needed, so that loading ours loads none of them."""


def digest(level: InstructionSet) -> str:
    """Changes with every change of the sources and flags of the build for `level`; which compiler there is makes no difference."""
    found = hashlib.sha256("\0".join((*_flags(level), *_LINKER_FLAGS)).encode())
    for source in sorted(_SOURCES.iterdir()):
        if source.suffix in (".h", ".cpp"):
            found.update(source.name.encode() + b"\0" + source.read_bytes())
    return found.hexdigest()[:16]


def build(level: InstructionSet, folder: Path) -> None:
    """Leave the library for `level` in `folder` as NAME.so and load it once; RuntimeError or OSError when a tool refuses."""
    from torch.utils.cpp_extension import load

    sources = [str(source) for source in sorted(_SOURCES.glob("*.cpp"))]
    load(
        NAME,
        sources,
        extra_cflags=list(_flags(level)),
        extra_ldflags=list(_LINKER_FLAGS),
        build_directory=str(folder),
        is_python_module=False,
    )


def main(arguments: Sequence[str]) -> int:
    """Build what the arguments name; what went wrong is on standard error."""
    level, folder = arguments
    try:
        build(InstructionSet(level), Path(folder))
    except ImportError as error:
        print(error, file=sys.stderr)
        return NO_TORCH
    except (OSError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _flags(level: InstructionSet) -> tuple[str, ...]:
    return (*_FLAGS, *level.compiler_flags)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
