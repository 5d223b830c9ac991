"""Which weights the node's model store holds, so that replicas are placed only where their model is."""

import logging
from pathlib import Path

from services.kit.model_store import ModelCorruptError, ModelStore, read_version, version_folders

log = logging.getLogger(__name__)


def cached_models(home: Path) -> tuple[str, ...]:
    """name@version of every version whose manifest and file sizes are right, sorted; a damaged one is logged and left out."""
    root = ModelStore(home).root
    if not root.is_dir():
        return ()
    return tuple(sorted(name for model in root.iterdir() for name in _versions(model)))


def _versions(model: Path) -> list[str]:
    found = []
    try:
        for folder in version_folders(model):
            found.append(_name(folder))
    except OSError:  # A version went away while it was looked at; the next look will be right.
        log.info("model store changed while it was read", extra={"fields": {"model": model.name}})
    return [name for name in found if name]


def _name(folder: Path) -> str:
    try:
        version = read_version(folder)
    except ModelCorruptError as error:
        log.warning("model version is left out", extra={"fields": {"error": error.message}})
        return ""
    return f"{version.name}@{version.version}"
