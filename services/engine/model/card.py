"""The model card: what an operator writes down about a model so that one command can import it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import yaml

from services.engine.model.errors import ModelImportError

_DEFAULTS = frozenset({"temperature", "top_p", "top_k"})


@dataclass(frozen=True, slots=True)
class ModelCard:
    """One file of `models/`, checked. The source is a path or a file inside an installed package."""

    name: str
    license: str
    source_package: str = ""
    source_file: str = ""
    """Path, or the name of the file within the package."""
    max_context_tokens: int = 0
    """Upper bound on the context; 0 takes what the weights were trained for."""
    eos_tokens: tuple[str, ...] = ()
    """Tokens that end an answer besides the one the source names."""
    defaults: Mapping[str, float] = field(default_factory=dict)
    numerics: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    """How finely to compute where the operator does not say: fields of `Numerics` under `cpu`."""

    def source(self) -> Path:
        """Where the weights lie on this machine; ModelImportError when the package or the file is missing."""
        if not self.source_package:
            return Path(self.source_file)
        try:
            files = distribution(self.source_package).files or []
        except PackageNotFoundError as error:
            raise ModelImportError(f"package {self.source_package} is not installed; run: pip install {self.source_package}") from error
        for file in files:
            if file.name == self.source_file:
                return Path(str(file.locate()))
        raise ModelImportError(f"package {self.source_package} holds no {self.source_file}")


def load_card(path: Path) -> ModelCard:
    """The card in `path`; ModelImportError lists every field that is unknown, missing or of a wrong type."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelImportError(f"model card {path} cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise ModelImportError(f"model card {path} is not YAML") from error
    fields = _mapping(content)
    source = _mapping(fields.get("source"))
    faults = [*_faults(fields, _FIELDS, ""), *_faults(source, _SOURCE, "source.")]
    faults += [*_default_faults(fields.get("defaults", {})), *_numerics_faults(fields.get("numerics", {}))]
    if faults:
        raise ModelImportError(f"model card {path.name}: {'; '.join(faults)}")
    return ModelCard(
        name=fields["name"],
        license=fields["license"],
        source_package=source.get("package", ""),
        source_file=source["file"],
        max_context_tokens=fields.get("max_context_tokens", 0),
        eos_tokens=tuple(fields.get("eos_tokens", [])),
        defaults={key: float(value) for key, value in fields.get("defaults", {}).items()},
        numerics=fields.get("numerics", {}),
    )


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


_FIELDS = {
    "name": (str, True),
    "description": (str, False),
    "license": (str, True),
    "source": (dict, True),
    "max_context_tokens": (int, False),
    "eos_tokens": (list, False),
    "defaults": (dict, False),
    "numerics": (dict, False),
}
_NUMERICS = {"activations": (int, False), "kv": (str, False)}
_SOURCE = {"package": (str, False), "file": (str, True)}


def _faults(fields: Mapping[str, Any], known: Mapping[str, tuple[type, bool]], prefix: str) -> list[str]:
    faults = [f"unknown field {prefix}{name}" for name in fields if name not in known]
    for name, (kind, required) in known.items():
        if name not in fields:
            faults += [f"{prefix}{name} is missing"] if required else []
        elif not isinstance(fields[name], kind) or isinstance(fields[name], bool):
            faults.append(f"{prefix}{name} must be a {kind.__name__}")
    return faults


def _default_faults(defaults: object) -> list[str]:
    if not isinstance(defaults, dict):
        return []
    faults = [f"unknown field defaults.{name}" for name in defaults if name not in _DEFAULTS]
    return faults + [f"defaults.{name} must be a number" for name, value in defaults.items() if not isinstance(value, (int, float))]


def _numerics_faults(numerics: object) -> list[str]:
    if not isinstance(numerics, dict):
        return []
    faults = [f"unknown field numerics.{device}" for device in numerics if device != "cpu"]
    path = numerics.get("cpu", {})
    if not isinstance(path, dict):
        return [*faults, "numerics.cpu must be a dict"]
    faults += _faults(path, _NUMERICS, "numerics.cpu.")
    known = {"activations": (8, 15), "kv": ("bfloat16", "int8")}
    for name, values in known.items():
        if name in path and path[name] not in values:
            faults.append(f"numerics.cpu.{name} must be one of {', '.join(map(str, values))}")
    return faults
