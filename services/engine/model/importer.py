"""Imports weights into the model store: one atomic, repeatable step from a source file to a verified version folder."""

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from services.engine.model.card import ModelCard
from services.engine.model.errors import ModelImportError
from services.kit.model_store import (
    MANIFEST,
    ModelCorruptError,
    ModelStore,
    ModelVersion,
    check_name,
    read_version,
    sha256_of,
    version_folders,
    version_of,
)

CONVERSION = 1
"""Counts changes of what the conversion writes; an old version is imported anew after a change."""

Progress = Callable[[str, int, int], None]
"""Hears (stage, done, total); total is never 0."""


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """What the operator says about a model that its weights do not say."""

    license: str = "unknown"
    max_context_tokens: int = 0
    """Upper bound on the context; 0 takes what the weights were trained for."""
    eos_tokens: tuple[str, ...] = ()
    defaults: dict[str, float] = field(default_factory=dict)
    numerics: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Fields of `Numerics` by device; only `cpu` is known."""


def import_card(card: ModelCard, home: Path, progress: Progress | None = None) -> ModelVersion:
    """Import what a model card describes; see `import_model`."""
    options = ImportOptions(card.license, card.max_context_tokens, card.eos_tokens, dict(card.defaults), dict(card.numerics))
    return import_model(card.source(), card.name, home, options, progress)


def import_model(
    source: Path, name: str, home: Path, options: ImportOptions | None = None, progress: Progress | None = None
) -> ModelVersion:
    """Make `<home>/models/<name>/<version>/` from the GGUF file `source` and return the version, verified.

    The folder appears whole or not at all. The same source with the same options is imported once: a second call verifies what is there,
    and repairs it when it was damaged. Importers of one model wait for each other. Raises ModelImportError (or ModelNotFoundError for a
    name that cannot be one).
    """
    options, hear = options or ImportOptions(), progress or _ignore
    folder = ModelStore(home).root / check_name(name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        hear("checksum", 0, 1)
        source_sha256 = sha256_of(source)
        recipe = _recipe(source_sha256, name, options)
        with _lock(folder):
            _sweep(folder)
            found = _imported(folder, recipe)
            if found is None:
                found = _convert(source, source_sha256, recipe, name, folder, options, hear)
    except OSError as error:
        raise ModelImportError(f"model {name} cannot be imported: {error.filename or folder}: {error.strerror}") from error
    hear("done", 1, 1)
    return found


def _recipe(source_sha256: str, name: str, options: ImportOptions) -> str:
    said = {field: value for field, value in asdict(options).items() if field != "numerics" or value}
    text = json.dumps({"conversion": CONVERSION, "source": source_sha256, "name": name, "options": said}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """One importer per model; the kernel drops the lock when its holder dies."""
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _sweep(folder: Path) -> None:
    """Remove what importers that died left behind; only called by the holder of the lock."""
    for left in folder.glob(".tmp-*"):
        shutil.rmtree(left)


def _imported(folder: Path, recipe: str) -> ModelVersion | None:
    """The version made by `recipe` if it is there and whole; a damaged one is removed so that it can be made again."""
    for candidate in version_folders(folder):
        try:
            version = read_version(candidate)
            if version.recipe != recipe:
                continue
            version.verify()
        except ModelCorruptError:
            _retire(candidate)
            continue
        os.utime(candidate)
        return version
    return None


def _retire(folder: Path) -> None:
    """Take a damaged version away in one rename, so that a reader never sees half of it."""
    grave = Path(tempfile.mkdtemp(prefix=".tmp-", dir=folder.parent))
    folder.rename(grave / folder.name)
    shutil.rmtree(grave)


def _convert(
    source: Path, source_sha256: str, recipe: str, name: str, folder: Path, options: ImportOptions, hear: Progress
) -> ModelVersion:
    from services.engine.model.conversion import convert_gguf

    work = Path(tempfile.mkdtemp(prefix=".tmp-", dir=folder))
    try:
        facts = convert_gguf(source, work, options.max_context_tokens, options.eos_tokens, hear)
        manifest = {**facts, "name": name, "license": options.license, "defaults": options.defaults}
        manifest |= {"source_sha256": source_sha256, "recipe": recipe}
        manifest |= {"numerics": options.numerics} if options.numerics else {}
        return _publish(work, folder, manifest)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _publish(work: Path, folder: Path, manifest: dict[str, Any]) -> ModelVersion:
    manifest["version"] = version_of(manifest)
    (work / MANIFEST).write_text(json.dumps(manifest, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    for path in (*work.iterdir(), work):
        _sync(path)
    work.chmod(0o755)
    target = folder / manifest["version"]
    work.rename(target)
    _sync(folder)
    return read_version(target)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _ignore(stage: str, done: int, total: int) -> None:
    """Nobody asked for progress."""
