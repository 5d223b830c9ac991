"""Compiles the kernels once per machine and keeps the library below INFERWAY_HOME."""

import fcntl
import hashlib
import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from services.engine import kernels
from services.engine.cpu_runner.instruction_set import InstructionSet, NoKernelsError

logger = logging.getLogger(__name__)

SOURCES = Path(kernels.__path__[0]) / "cpu"
COMPILERS = ("c++", "g++", "clang++")
_FLAGS = ("-std=c++20", "-O3", "-fPIC", "-shared", "-pthread", "-ffp-contract=off", "-fno-math-errno", "-Wno-psabi")
_TIMEOUT_S = 300.0


def library(home: Path, level: InstructionSet, environ: Mapping[str, str] = os.environ) -> Path:
    """The shared library for `level`, built when it is not there yet (seconds; safe beside other processes). NoKernelsError when not.

    The file name carries a digest of sources, flags and compiler: any change of them builds anew.
    """
    compiler = _compiler(environ)
    flags = (*_FLAGS, *level.compiler_flags)
    folder = home / "kernels"
    path = folder / f"cpu-{level.value}-{_digest(compiler, flags)}.so"
    if path.exists():
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "build.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                _build(compiler, flags, path)
    except OSError as error:
        raise NoKernelsError(f"{folder} cannot hold the native kernels: {error.strerror}", "make INFERWAY_HOME writable") from error
    return path


def _compiler(environ: Mapping[str, str]) -> str:
    named = environ.get("CXX")
    for name in (named,) if named else COMPILERS:
        found = shutil.which(name, path=environ.get("PATH"))
        if found:
            return found
    missing = f"the C++ compiler {named} of CXX was not found" if named else "no C++ compiler was found"
    raise NoKernelsError(missing, "install g++ 11 or clang++ 15 (or newer), or name one in CXX, and start the replica again")


def _digest(compiler: str, flags: tuple[str, ...]) -> str:
    digest = hashlib.sha256("\0".join((compiler, *flags)).encode())
    for source in sorted(SOURCES.iterdir()):
        if source.suffix in (".h", ".cpp"):
            digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _build(compiler: str, flags: tuple[str, ...], path: Path) -> None:
    logger.info("building the CPU kernels", extra={"library": path.name})
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        built = Path(folder) / path.name
        try:
            result = subprocess.run(
                [compiler, *flags, str(SOURCES / "step.cpp"), "-o", str(built)],
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise NoKernelsError(
                f"the C++ compiler did not end within {_TIMEOUT_S:.0f} s", "start the replica again on an idle machine"
            ) from error
        if result.returncode:
            logger.error("the CPU kernels do not compile", extra={"compiler_output": result.stderr[-2000:]})
            raise NoKernelsError("the C++ compiler refused the kernels", "use g++ 11 or clang++ 15 or newer (name it in CXX)")
        os.replace(built, path)
