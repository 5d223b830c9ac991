"""Changes a stored model so that its checksums still hold: what is wrong with it has to be found by reading it."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from services.kit.model_store import MANIFEST, ModelVersion, sha256_of, version_of


def replace_file(version: ModelVersion, name: str, content: bytes) -> None:
    """Put something else in a file's place."""
    path = version.path / name
    _write(path, content)
    manifest = _manifest(version.path)
    manifest["files"][name] = {"sha256": sha256_of(path), "bytes": len(content)}
    _sign(version.path, manifest)


def change_json(version: ModelVersion, name: str, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a document."""
    document = json.loads((version.path / name).read_bytes())
    change(document)
    replace_file(version, name, json.dumps(document).encode())


def change_manifest(version: ModelVersion, fields: Mapping[str, object]) -> None:
    """Change what the manifest says."""
    _sign(version.path, {**_manifest(version.path), **fields})


def _manifest(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / MANIFEST).read_bytes())
    return found


def _sign(folder: Path, manifest: dict[str, Any]) -> None:
    manifest["version"] = version_of(manifest)
    folder.chmod(0o755)
    _write(folder / MANIFEST, json.dumps(manifest).encode())
    folder.rename(folder.with_name(manifest["version"]))


def _write(path: Path, content: bytes) -> None:
    path.chmod(0o644)
    path.write_bytes(content)
