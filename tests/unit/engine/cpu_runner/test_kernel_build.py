"""Kernels are built once, and where they cannot be built the reason and the remedy are said."""

import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from services.engine.cpu_runner.instruction_set import InstructionSet, NoKernelsError
from services.engine.cpu_runner.kernel_build import library

_LEVEL = InstructionSet.AVX512


def compiler(folder: Path, script: str) -> dict[str, str]:
    """An environment whose only compiler is `script`."""
    path = folder / "c++"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {"PATH": f"{folder}:/usr/bin:/bin", "CXX": str(path)}


def counting(folder: Path) -> dict[str, str]:
    """A compiler that writes a line per call and puts a file where it is told to."""
    return compiler(folder, f'echo call >> {folder}/calls; while [ "$1" != -o ]; do shift; done; echo built > "$2"')


def test_library_is_built_at_the_first_call_only(tmp_path: Path) -> None:
    environ = counting(tmp_path)
    first = library(tmp_path, _LEVEL, environ)
    assert first.read_text() == "built\n"
    assert library(tmp_path, _LEVEL, environ) == first
    assert (tmp_path / "calls").read_text().count("call") == 1
    assert sorted(path.name for path in first.parent.iterdir()) == ["build.lock", first.name]


def test_library_of_another_build_is_another_file(tmp_path: Path) -> None:
    environ = counting(tmp_path)
    assert library(tmp_path, _LEVEL, environ) != library(tmp_path, InstructionSet.AVX2, environ)


@pytest.mark.parametrize(
    ("environ", "reason", "remedy"),
    [
        ({"PATH": ""}, "no C\\+\\+ compiler was found", "install g\\+\\+"),
        ({"PATH": "", "CXX": "no-such-compiler"}, "no-such-compiler of CXX was not found", "name one in CXX"),
    ],
)
def test_library_without_a_compiler_says_what_to_install(tmp_path: Path, environ: dict[str, str], reason: str, remedy: str) -> None:
    with pytest.raises(NoKernelsError, match=reason) as caught:
        library(tmp_path, _LEVEL, environ)
    assert re.search(remedy, caught.value.remedy)


def test_library_that_does_not_compile_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(NoKernelsError, match="refused the kernels"):
        library(tmp_path, _LEVEL, compiler(tmp_path, "echo error: no such option >&2; exit 1"))
    assert [path.name for path in (tmp_path / "kernels").iterdir()] == ["build.lock"]


def test_library_in_a_place_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "kernels").write_text("in the way")
    with pytest.raises(NoKernelsError, match="cannot hold the native kernels"):
        library(tmp_path, _LEVEL, counting(tmp_path))


def test_main_builds_ahead_of_the_first_start_or_says_what_to_mend(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "services.engine.cpu_runner"]
    environ = {**counting(tmp_path), "INFERWAY_HOME": str(tmp_path)}
    built = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=50, check=True)
    assert Path(built.stdout.strip()).read_text() == "built\n"
    failed = subprocess.run(command, env={**environ, "CXX": "no-such-compiler"}, capture_output=True, text=True, timeout=50, check=False)
    assert failed.returncode == 1
    assert "to mend: install g++" in failed.stderr
