"""Finds the library of the kernels: made ready by somebody else, kept below INFERWAY_HOME, or built now and then kept there."""

import fcntl
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import services
from services.engine.cpu_runner import extension
from services.engine.cpu_runner.instruction_set import InstructionSet, NoKernelsError

logger = logging.getLogger(__name__)

COMPILERS = ("c++", "g++", "clang++")
_TIMEOUT_S = 300.0
_FOLDER = "kernels"
_UNFINISHED = "build-"


def find(home: Path, level: InstructionSet, ready_made: Path | None = None) -> Path | None:
    """The shared library for `level` if there is one, in the folder `ready_made` or below `home`. Needs no compiler and writes nothing.

    The file name carries a digest of sources and flags: a library of other ones is never found.
    """
    name = _file_name(level)
    places = [folder / name for folder in (ready_made, home / _FOLDER) if folder is not None]
    return next((place for place in places if place.exists()), None)


def library(
    home: Path,
    level: InstructionSet,
    ready_made: Path | None = None,
    environ: Mapping[str, str] = os.environ,
    timeout_s: float = _TIMEOUT_S,
) -> Path:
    """The shared library for `level`, built below `home` when it is nowhere: in seconds, safe beside other processes.

    NoKernelsError when it cannot be built; `timeout_s` is for building alone.
    """
    if found := find(home, level, ready_made):
        return found
    told = _tools(environ)
    folder = home / _FOLDER
    path = folder / _file_name(level)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "build.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                _sweep(folder)
                _build(level, path, told, timeout_s)
    except OSError as error:
        raise NoKernelsError(f"{folder} cannot hold the native kernels: {error.strerror}", "make INFERWAY_HOME writable") from error
    return path


def _file_name(level: InstructionSet) -> str:
    return f"cpu-{level.value}-{extension.digest(level)}.so"


def _tools(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment in which torch finds the compiler and ninja, which is installed beside Python."""
    path = os.pathsep.join(filter(None, (str(Path(sys.executable).parent), environ.get("PATH"))))
    told = {**environ, "CXX": _compiler(environ), "PATH": path}
    if not shutil.which("ninja", path=path):
        raise NoKernelsError("ninja was not found, with which torch builds extensions", "install the locked packages again (`make setup`)")
    return told


def _compiler(environ: Mapping[str, str]) -> str:
    named = environ.get("CXX")
    for name in (named,) if named else COMPILERS:
        found = shutil.which(name, path=environ.get("PATH"))
        if found:
            return os.path.abspath(found)
    missing = f"the C++ compiler {named} of CXX was not found" if named else "no C++ compiler was found"
    raise NoKernelsError(missing, "install g++ 11 or clang++ 15 (or newer), or name one in CXX, and start the replica again")


def _sweep(folder: Path) -> None:
    """Remove what builders that were killed left behind; only the holder of the lock may."""
    for left in folder.glob(_UNFINISHED + "*"):
        shutil.rmtree(left, ignore_errors=True)


def _build(level: InstructionSet, path: Path, environ: Mapping[str, str], timeout_s: float) -> None:
    logger.info("building the CPU kernels", extra={"library": path.name})
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=_UNFINISHED, ignore_cleanup_errors=True) as name:
        folder = Path(name).absolute()
        try:
            status = _run(level, folder, environ, timeout_s)
        except subprocess.TimeoutExpired as error:
            raise NoKernelsError(
                f"the C++ compiler did not end within {timeout_s:.0f} s", "start the replica again on an idle machine"
            ) from error
        if status:
            output = (folder / "output").read_text(errors="replace")[-2000:].strip()
            if status == extension.NO_TORCH:
                raise NoKernelsError(
                    f"torch, which builds the kernels, cannot be imported: {output}", "install the locked packages again (`make setup`)"
                )
            logger.error("the CPU kernels do not compile:\n%s", output)
            raise NoKernelsError("the C++ compiler refused the kernels", "use g++ 11 or clang++ 15 or newer (name it in CXX)")
        os.replace(folder / f"{extension.NAME}.so", path)


def _run(level: InstructionSet, folder: Path, environ: Mapping[str, str], timeout_s: float) -> int:
    """Exit status of the process that builds, its words in `folder`/output. Who cannot wait for its end ends it and all that it started."""
    command = [sys.executable, "-m", extension.__name__, level.value, str(folder)]
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            command,
            env=environ,
            cwd=Path(services.__path__[0]).parent,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        return process.wait(timeout_s)
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGTERM)  # Not SIGKILL: ninja has to end its compilers, which are in groups of their own.
            process.wait()
