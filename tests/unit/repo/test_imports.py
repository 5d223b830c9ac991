"""The direction of imports: services know kit and their contracts, never each other; kit knows no service; the domain knows no wire."""

import ast
import pathlib
from collections.abc import Iterator

import pytest

SERVICES = pathlib.Path("services")
NAMES = ("gateway", "router", "scheduler", "engine", "metering")
FILES = sorted(SERVICES.rglob("*.py"))
# Where proto and grpc may be imported: the edges of a service.
WIRE = ("server", "servicer", "clients", "__main__")


def imported(path: pathlib.Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def owner(path: pathlib.Path) -> str:
    return path.relative_to(SERVICES).parts[0]


def is_wire(path: pathlib.Path) -> bool:
    inner = path.relative_to(SERVICES).parts[1:]
    return any(part.removesuffix(".py") in WIRE for part in inner)


@pytest.mark.parametrize("path", FILES, ids=str)
def test_imports_service_never_imports_another_service(path: pathlib.Path) -> None:
    others = {f"services.{name}" for name in NAMES if name != owner(path)}
    wrong = [name for name in imported(path) if ".".join(name.split(".")[:2]) in others]
    assert not wrong, f"{path} imports {wrong}"


@pytest.mark.parametrize("path", [path for path in FILES if owner(path) in NAMES and not is_wire(path)], ids=str)
def test_imports_domain_knows_no_wire(path: pathlib.Path) -> None:
    wrong = [name for name in imported(path) if name.split(".")[0] in ("grpc", "inferway")]
    assert not wrong, f"{path} is domain code and imports {wrong}"


def test_imports_entry_points_are_short() -> None:
    long = [str(path) for path in SERVICES.rglob("__main__.py") if path.read_text().count("\n") > 20]
    assert not long
