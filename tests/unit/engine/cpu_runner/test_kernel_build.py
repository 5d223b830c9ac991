"""Kernels are built once, by torch's extension mechanism, and where they cannot be built the reason and the remedy are said."""

import ctypes
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.engine.cpu_runner import extension
from services.engine.cpu_runner.instruction_set import InstructionSet, NoKernelsError
from services.engine.cpu_runner.kernel_build import find, library
from tests.harness.cpu_kernels import LEVELS, kernel_library
from tests.harness.eventually import eventually
from tests.harness.pids import until_gone

_LEVEL = InstructionSet.AVX512
_REAL = shutil.which("c++")


def compiler(folder: Path, script: str) -> dict[str, str]:
    """An environment whose compiler runs `script` before it makes an empty library of whatever it is given.

    The script finds the file to make in $target, and $compiles is empty when it is to link; other questions a real compiler answers.
    """
    path = folder / "c++"
    path.write_text(
        "#!/bin/sh\n"
        'compiles= target= previous=\nfor word; do\n  [ "$previous" = -o ] && target=$word\n  [ "$word" = -c ] && compiles=1\n'
        f'  previous=$word\ndone\n[ -n "$target" ] || exec {_REAL} "$@"\n{script}\n'
        f'exec {_REAL} -shared -fPIC -x c++ /dev/null -o "$target"\n'
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {"PATH": f"{folder}:/usr/bin:/bin", "CXX": str(path)}


def counting(folder: Path) -> dict[str, str]:
    """A compiler that writes a line for every source."""
    return compiler(folder, f'[ -z "$compiles" ] || echo call >> {folder}/calls')


def without_torch(folder: Path, code: str) -> dict[str, str]:
    """An environment in which `import torch` runs `code`."""
    (folder / "modules").mkdir()
    (folder / "modules" / "torch.py").write_text(code)
    return {**counting(folder), "PYTHONPATH": str(folder / "modules")}


def left_in(home: Path) -> list[str]:
    return sorted(path.name for path in (home / "kernels").iterdir())


def start_main(environ: dict[str, str], *arguments: str, python: str = sys.executable) -> subprocess.Popen[str]:
    """`make setup` as far as the kernels go."""
    told = {"PYTHONPATH": os.pathsep.join(sys.path), **environ}
    command = [python, "-m", "services.engine.cpu_runner", *arguments]
    return subprocess.Popen(command, env=told, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_library_is_built_at_the_first_call_only_and_leftovers_of_a_killed_build_go(tmp_path: Path) -> None:
    environ = counting(tmp_path)
    (tmp_path / "kernels" / "build-killed").mkdir(parents=True)
    (tmp_path / "kernels" / "build-killed" / "step.o").touch()
    assert find(tmp_path, _LEVEL) is None
    first = library(tmp_path, _LEVEL, environ=environ)
    ctypes.CDLL(str(first))
    assert library(tmp_path, _LEVEL, environ={"PATH": ""}) == find(tmp_path, _LEVEL) == first
    assert (tmp_path / "calls").read_text() == "call\n"
    assert left_in(tmp_path) == ["build.lock", first.name]


def test_main_of_two_processes_builds_everything_once_and_says_so_in_one_line(tmp_path: Path) -> None:
    environ = {**counting(tmp_path), "INFERWAY_HOME": str(tmp_path)}
    starting = [start_main(environ, "--all") for _ in range(2)]
    for process in starting:
        said = process.communicate(timeout=50)
        assert re.fullmatch(r"native kernels: (AVX[\w -]+ (built in \d+ s|is there)(, |\n)){3}", said[0]), said
    assert (tmp_path / "calls").read_text().splitlines() == ["call"] * len(InstructionSet)
    assert len(left_in(tmp_path)) == 1 + len(InstructionSet)
    again = start_main(environ, "--all").communicate(timeout=50)
    assert re.fullmatch(r"native kernels: (AVX[\w -]+ is there(, |\n)){3}", again[0]), again


def test_library_that_is_ready_made_is_taken_first_and_needs_no_compiler(tmp_path: Path) -> None:
    ready, home = tmp_path / "ready", tmp_path / "home"
    ready.mkdir()
    own = ready / f"cpu-{_LEVEL.value}-{extension.digest(_LEVEL)}.so"
    own.touch()
    assert library(home, _LEVEL, ready, {"PATH": ""}) == own
    assert not home.exists()


def test_library_that_is_ready_made_for_other_sources_is_passed_by(tmp_path: Path) -> None:
    ready, home = tmp_path / "ready", tmp_path / "home"
    ready.mkdir()
    (ready / f"cpu-{_LEVEL.value}-0123456789abcdef.so").touch()
    with pytest.raises(NoKernelsError, match="no C\\+\\+ compiler"):
        library(home, _LEVEL, ready, {"PATH": ""})


def test_digest_differs_by_build() -> None:
    assert len({extension.digest(level) for level in InstructionSet}) == len(InstructionSet)


@pytest.mark.timeout(300)  # It may have to compile, on a machine that does other things.
@pytest.mark.parametrize("level", LEVELS)
def test_library_needs_nothing_of_torch_and_runs_nothing_when_it_is_loaded(level: InstructionSet) -> None:
    """The second is what lets an image be built where no CPU runs the build: torch loads what it has built."""
    readelf = subprocess.run(["readelf", "-dW", str(kernel_library(level))], capture_output=True, text=True, timeout=20, check=True).stdout
    needed = {re.sub(r"\.so.*", "", name) for name in re.findall(r"\(NEEDED\).*\[(.*)\]", readelf)}
    assert "libc" in needed
    assert needed <= {"libc", "libm", "libgcc_s", "libpthread", "libstdc++"}
    assert "RUNPATH" not in readelf
    assert re.findall(r"\(INIT_ARRAYSZ\)\s+(\d+)", readelf) == ["8"]  # One address: the compiler's own, in every library.


@pytest.mark.parametrize(
    ("environ", "reason", "remedy"),
    [
        ({"PATH": ""}, "no C\\+\\+ compiler was found", "install g\\+\\+"),
        ({"PATH": "", "CXX": "no-such-compiler"}, "no-such-compiler of CXX was not found", "name one in CXX"),
    ],
)
def test_library_without_a_compiler_says_what_to_install(tmp_path: Path, environ: dict[str, str], reason: str, remedy: str) -> None:
    with pytest.raises(NoKernelsError, match=reason) as caught:
        library(tmp_path, _LEVEL, environ=environ)
    assert re.search(remedy, caught.value.remedy)


def test_library_without_torch_says_what_to_install(tmp_path: Path) -> None:
    environ = without_torch(tmp_path, "raise ModuleNotFoundError(\"No module named 'torch'\")")
    with pytest.raises(NoKernelsError, match="torch, which builds the kernels, cannot be imported: No module named 'torch'") as caught:
        library(tmp_path, _LEVEL, environ=environ)
    assert "make setup" in caught.value.remedy
    assert left_in(tmp_path) == ["build.lock"]


def test_library_that_does_not_compile_leaves_nothing_behind_but_the_compiler_s_words(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(NoKernelsError, match="refused the kernels"):
        library(tmp_path, _LEVEL, environ=compiler(tmp_path, "echo error: no such option >&2; exit 1"))
    assert left_in(tmp_path) == ["build.lock"]
    assert "error: no such option" in caplog.text


def test_library_that_cannot_be_loaded_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoKernelsError, match="refused the kernels"):
        library(tmp_path, _LEVEL, environ=compiler(tmp_path, '[ -n "$compiles" ] || { echo none > "$target"; exit 0; }'))
    assert left_in(tmp_path) == ["build.lock"]


def test_library_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    environ = without_torch(tmp_path, "import time\ntime.sleep(600)")
    with pytest.raises(NoKernelsError, match="did not end within"):
        library(tmp_path, _LEVEL, environ=environ, timeout_s=0.1)
    assert left_in(tmp_path) == ["build.lock"]


@pytest.mark.parametrize(
    ("tools", "reason"),
    [
        ({"CXX": "no-such-compiler"}, "the C++ compiler no-such-compiler of CXX was not found; to mend: install g++"),
        ({}, "ninja was not found, with which torch builds extensions; to mend: install the locked packages again"),
    ],
)
def test_main_says_in_one_line_what_is_missing_and_what_it_means(tmp_path: Path, tools: dict[str, str], reason: str) -> None:
    python = tmp_path / "python"  # Beside which there is no ninja.
    python.symlink_to(Path(sys.executable).resolve())
    environ = {**counting(tmp_path), "PATH": str(tmp_path), "INFERWAY_HOME": str(tmp_path), **tools}
    process = start_main(environ, "--all", python=str(python))
    said, _ = process.communicate(timeout=50)
    assert said.startswith(f"native kernels: none, so torch serves, several times slower: {reason}"), said
    assert said.count("\n") == process.returncode == 1


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Processes that a test starts hear SIGINT, also where this one was started to ignore it, as one in the background is."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
async def test_main_that_is_interrupted_takes_its_compiler_along(tmp_path: Path) -> None:
    environ = {
        **compiler(tmp_path, f'[ -z "$compiles" ] || {{ echo $$ > {tmp_path}/pid; exec sleep 600; }}'),
        "INFERWAY_HOME": str(tmp_path),
    }
    process = start_main(environ, "--all")
    await eventually(lambda: (tmp_path / "pid").exists() and bool((tmp_path / "pid").read_text()), 50)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=50)
    await until_gone(int((tmp_path / "pid").read_text()))
    assert find(tmp_path, InstructionSet.AVX512_BF16) is None


def test_library_in_a_place_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "kernels").write_text("in the way")
    with pytest.raises(NoKernelsError, match="cannot hold the native kernels"):
        library(tmp_path, _LEVEL, environ=counting(tmp_path))
