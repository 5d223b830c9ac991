"""Reads model version folders: what a model is, where its files lie and whether they are whole; needs neither torch nor gguf.

Layout: `<home>/models/<name>/<version>/` with `manifest.json` beside the files it lists. The manifest carries a SHA-256 of every file and
the version is a digest of the manifest itself, so an altered, truncated or swapped file (the manifest included) is noticed.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.kit.errors import DataLoss, NotFound

MANIFEST = "manifest.json"
MANIFEST_FORMAT = 1
WEIGHTS = "model.safetensors"
CONFIG = "config.json"
TOKENIZER = "tokenizer.json"
CHAT_TEMPLATE = "chat_template.jinja"
REQUIRED_FILES = (WEIGHTS, CONFIG, TOKENIZER, CHAT_TEMPLATE)

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")
_VERSION = re.compile(r"[0-9a-f]{12}")


class ModelNotFoundError(NotFound):
    """No such model or version, or a name that no model can have."""

    default_reason = "MODEL_NOT_FOUND"


class ModelCorruptError(DataLoss):
    """A file of the version folder is missing, truncated or altered; import the model again."""

    default_reason = "MODEL_CORRUPT"


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One file of a version as the manifest knows it."""

    sha256: str
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Numerics:
    """How finely the model is computed on a CPU where the operator does not say."""

    activations: int = 15
    """Bits, 15 or 8."""
    kv: str = "bfloat16"
    """Keys and values: `bfloat16` or `int8`."""

    def __post_init__(self) -> None:
        """ValueError for what nobody can compute."""
        if self.activations not in (8, 15) or self.kv not in ("bfloat16", "int8"):
            raise ValueError("numerics")


@dataclass(frozen=True, slots=True)
class ModelVersion:
    """One immutable version of a model. `get` has checked the manifest and the sizes; `read` and `verify` check contents."""

    name: str
    version: str
    path: Path
    max_context_tokens: int
    vocab_size: int
    eos_token_ids: frozenset[int]
    bos_token_id: int | None
    license: str
    defaults: Mapping[str, float]
    """Sampling defaults of the model's makers (`temperature`, `top_p`, ...); empty when the card names none."""
    source_sha256: str
    """Digest of the file the version was made from."""
    recipe: str
    """Digest of the source and of everything that decided the conversion; equal recipes give equal versions."""
    files: Mapping[str, StoredFile]
    numerics: Numerics = Numerics()

    def file(self, name: str) -> Path:
        """Path of a listed file; ModelCorruptError when the manifest does not list it."""
        self._entry(name)
        return self.path / name

    def read(self, name: str) -> bytes:
        """Contents of a small file, checked against its digest; ModelCorruptError when they differ."""
        entry = self._entry(name)
        try:
            content = (self.path / name).read_bytes()
        except OSError as error:
            raise ModelCorruptError(f"{self.name} {self.version}: {name} cannot be read: {error.strerror}") from error
        if hashlib.sha256(content).hexdigest() != entry.sha256:
            raise ModelCorruptError(f"{self.name} {self.version}: {name} does not match its checksum")
        return content

    def verify(self, names: Iterable[str] | None = None) -> None:
        """Check the digests of `names` (default: all files); reads every byte. ModelCorruptError names the first bad file."""
        for name in sorted(self.files if names is None else names):
            entry = self._entry(name)
            try:
                digest = sha256_of(self.path / name)
            except OSError as error:
                raise ModelCorruptError(f"{self.name} {self.version}: {name} cannot be read: {error.strerror}") from error
            if digest != entry.sha256:
                raise ModelCorruptError(f"{self.name} {self.version}: {name} does not match its checksum")

    def _entry(self, name: str) -> StoredFile:
        entry = self.files.get(name)
        if entry is None:
            raise ModelCorruptError(f"{self.name} {self.version}: the manifest lists no {name}")
        return entry


class ModelStore:
    """The models below one INFERWAY_HOME. Reads only; any number of processes may read while one imports."""

    def __init__(self, home: Path) -> None:
        self.root = home / "models"

    def get(self, name: str, version: str = "") -> ModelVersion:
        """The version asked for, or the one imported last when `version` is empty.

        ModelNotFoundError when there is none, ModelCorruptError when the manifest or a file size is wrong.
        """
        folder = self.root / check_name(name)
        if version:
            if not _VERSION.fullmatch(version) or not (folder / version).is_dir():
                raise ModelNotFoundError(f"model {name} has no version {version!r} in {self.root}")
            return read_version(folder / version)
        folders = version_folders(folder)
        if not folders:
            raise ModelNotFoundError(f"model {name} is not in {self.root}; run: inferway model import {name}")
        return read_version(folders[-1])

    def list(self) -> list[ModelVersion]:
        """Every version in the store, by name and then oldest first. ModelCorruptError as `get`."""
        if not self.root.is_dir():
            return []
        names = sorted(entry.name for entry in self.root.iterdir() if entry.is_dir() and _NAME.fullmatch(entry.name))
        return [read_version(folder) for name in names for folder in version_folders(self.root / name)]


def check_name(name: str) -> str:
    """`name` when it can be a model name (lower case, digits, `.`, `_`, `-`); else ModelNotFoundError, so no path can be smuggled in."""
    if not _NAME.fullmatch(name):
        raise ModelNotFoundError(f"{name!r} is not a model name: use lower-case letters, digits, '.', '_' and '-'")
    return name


def version_folders(folder: Path) -> list[Path]:
    """Complete version folders of one model, the one imported last at the end."""
    if not folder.is_dir():
        return []
    found = (entry for entry in folder.iterdir() if _VERSION.fullmatch(entry.name) and entry.is_dir())
    return sorted(found, key=lambda entry: (entry.stat().st_mtime_ns, entry.name))


def sha256_of(path: Path) -> str:
    """Hex SHA-256 of a file of any size."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def version_of(manifest: Mapping[str, Any]) -> str:
    """The version that belongs to a manifest: a digest of everything in it but the version itself."""
    body = {key: value for key, value in manifest.items() if key != "version"}
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def read_version(folder: Path) -> ModelVersion:
    """The version in `folder`, its manifest and file sizes checked; ModelCorruptError says what is wrong."""
    label = f"{folder.parent.name} {folder.name}"
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        version = _from_manifest(folder, manifest)
    except OSError as error:
        raise ModelCorruptError(f"{label}: {MANIFEST} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelCorruptError(f"{label}: {MANIFEST} is not a manifest of format {MANIFEST_FORMAT}") from error
    if version_of(manifest) != folder.name or version.version != folder.name or version.name != folder.parent.name:
        raise ModelCorruptError(f"{label}: {MANIFEST} was altered: its digest is not the version")
    for name in (*REQUIRED_FILES, *version.files):
        _check_size(version, name)
    return version


def _from_manifest(folder: Path, manifest: Mapping[str, Any]) -> ModelVersion:
    if manifest["format"] != MANIFEST_FORMAT:
        raise ValueError("format")
    bos = manifest["bos_token_id"]
    return ModelVersion(
        name=str(manifest["name"]),
        version=str(manifest["version"]),
        path=folder,
        max_context_tokens=int(manifest["max_context_tokens"]),
        vocab_size=int(manifest["vocab_size"]),
        eos_token_ids=frozenset(int(token) for token in manifest["eos_token_ids"]),
        bos_token_id=None if bos is None else int(bos),
        license=str(manifest["license"]),
        defaults={str(key): float(value) for key, value in manifest["defaults"].items()},
        source_sha256=str(manifest["source_sha256"]),
        recipe=str(manifest["recipe"]),
        files={_plain(name): StoredFile(str(entry["sha256"]), int(entry["bytes"])) for name, entry in manifest["files"].items()},
        numerics=Numerics(**manifest.get("numerics", {}).get("cpu", {})),
    )


def _plain(name: str) -> str:
    if Path(name).name != name or name == MANIFEST:
        raise ValueError("file name")
    return name


def _check_size(version: ModelVersion, name: str) -> None:
    entry = version.files.get(name)
    try:
        found = None if entry is None else (version.path / name).stat().st_size
    except OSError:
        found = None
    if entry is None or found != entry.num_bytes:
        state = "is missing" if found is None else f"has {found} bytes"
        raise ModelCorruptError(f"{version.name} {version.version}: {name} {state}; import the model again")
