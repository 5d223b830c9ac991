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
    found = []
    for folder in (version for model in sorted(root.iterdir()) for version in version_folders(model)):
        try:
            version = read_version(folder)
        except ModelCorruptError as error:
            log.warning("model version is left out", extra={"fields": {"error": str(error)}})
        else:
            found.append(f"{version.name}@{version.version}")
    return tuple(sorted(found))
