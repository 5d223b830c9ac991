"""Kafka's jars: fetched once, whole or not at all, and a failing Maven explained by its own last word."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deploy.local import kafka_artefacts
from deploy.local.errors import LocalError

_FETCHES = """
for argument in "$@"; do case "$argument" in -DoutputDirectory=*) out="${argument#*=}";; esac; done
mkdir -p "$out"
touch "$out/kafka_2.13-4.4.0.jar" "$out/log4j-slf4j-impl-2.25.5.jar"
grep -q "<version>4.4.0</version>" pom.xml
"""
_FETCHES_A_PART = _FETCHES.replace('"$out/log4j-slf4j-impl-2.25.5.jar"', '"$out/other.jar"')
_FAILS = "echo '[ERROR] Could not transfer artifact'; exit 1"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An empty cache, and a PATH whose first place a test may fill."""
    (tmp_path / "bin").mkdir()
    return {"PATH": f"{tmp_path / 'bin'}:{os.defpath}", "XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path)}


def install_maven(tmp_path: Path, script: str) -> None:
    program = tmp_path / "bin" / "mvn"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_ensure_fetches_once_and_then_uses_the_cache(tmp_path: Path, environ: dict[str, str]) -> None:
    install_maven(tmp_path, _FETCHES)
    libs = kafka_artefacts.ensure(environ)
    install_maven(tmp_path, _FAILS)

    assert kafka_artefacts.ensure(environ) == libs
    assert kafka_artefacts.is_complete(libs)
    assert [path.name for path in libs.parent.iterdir()] == [libs.name]


@pytest.mark.parametrize(("script", "said"), [(_FAILS, "Could not transfer artifact"), (_FETCHES_A_PART, "exit status 0")])
def test_ensure_with_a_failing_maven_leaves_nothing_behind(tmp_path: Path, environ: dict[str, str], script: str, said: str) -> None:
    install_maven(tmp_path, script)

    with pytest.raises(LocalError, match=said) as caught:
        kafka_artefacts.ensure(environ)

    assert "INFERWAY_LOCAL_BROKER=tansu" in caught.value.remedy
    assert list((tmp_path / "cache" / "inferway").iterdir()) == []


def test_ensure_replaces_a_cache_that_is_not_whole(tmp_path: Path, environ: dict[str, str]) -> None:
    install_maven(tmp_path, _FETCHES)
    broken = kafka_artefacts.cache_directory(environ)
    broken.mkdir(parents=True)
    (broken / "half.jar").touch()

    kafka_artefacts.ensure(environ)

    assert kafka_artefacts.is_complete(broken)
    assert not (broken / "half.jar").exists()
