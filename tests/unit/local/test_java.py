"""The Java that is taken: new enough, and the machine's before the packaged one."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.local import java


def fake_java(directory: Path, version: str) -> Path:
    program = directory / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2030-01-01' >&2\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(("version", "major"), [("17.0.15", 17), ("1.8.0_392", 8), ("25", 25), ("21-ea", 21)])
def test_major_version_is_read_from_what_java_prints(tmp_path: Path, version: str, major: int) -> None:
    assert java.major_version(fake_java(tmp_path, version)) == major


def test_find_prefers_java_home(tmp_path: Path) -> None:
    program = fake_java(tmp_path, "17.0.1")

    assert java.find({"JAVA_HOME": str(tmp_path), "PATH": ""}) == program


def test_find_passes_over_an_old_java(tmp_path: Path) -> None:
    old = fake_java(tmp_path, "11.0.2")

    found = java.find({"JAVA_HOME": str(tmp_path), "PATH": str(old.parent)})

    assert found is not None and found != old
    assert java.major_version(found) >= java.MIN_MAJOR
