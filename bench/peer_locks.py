"""The locks of the peers' environments: everything that is installed, by version and hash, without the name of any registry."""

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

_ROOT = Path(__file__).resolve().parents[1]
_FOLDER = Path(__file__).with_name("locks")
_RESOLVE_TIMEOUT_S = 300
_INSTALL_TIMEOUT_S = 2400
_RESOLVE = ("-q", "--generate-hashes", "--no-header", "--no-annotate", "--no-emit-index-url", "--python-version", "3.11")
_PLATFORM = ("--python-platform", "x86_64-manylinux_2_28")


@dataclass(frozen=True, slots=True)
class PeerLock:
    """What one environment holds; `name` is that of its lock.

    `overrides` are requirements that replace what packages ask for; `build_packages` is what a package without wheels is built with.
    """

    name: str
    packages: tuple[str, ...]
    overrides: str = ""
    build_packages: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        return _FOLDER / f"{self.name}.lock"

    @property
    def build_path(self) -> Path:
        return _FOLDER / f"{self.name}-build.lock"

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files that there are."""
        return (self.path, self.build_path) if self.build_packages else (self.path,)

    @property
    def digest(self) -> str:
        """Of all that is locked."""
        return hashlib.sha256(b"\0".join(path.read_bytes() for path in self.paths)).hexdigest()[:16]

    def resolve(self) -> None:
        """Write the lock anew, from what the registry has today."""
        _resolve(self.packages, self.overrides, self.path)
        if self.build_packages:
            _resolve(self.build_packages, "", self.build_path)

    def install(self, folder: Path, environ: Mapping[str, str]) -> None:
        """Bring the environment at `folder` to the lock, if it is not; a file with another hash than the lock's ends it."""
        stamp = folder / f".installed-{self.digest}"
        if stamp.exists():
            return
        print(f"• installing {', '.join(self.packages)}", flush=True)
        if not (folder / "bin" / "python").exists():
            _uv(["venv", "-q", "--no-python-downloads", "--python", sys.executable, str(folder)], 60)
        # Without dependencies: the lock has them all, and overrides count in it already.
        command = ["pip", "install", "-q", "--no-deps", "--require-hashes", "--python", str(folder / "bin" / "python")]
        built_with = ["--build-constraints", str(self.build_path)] if self.build_packages else []
        _uv([*command, *built_with, "-r", str(self.path)], _INSTALL_TIMEOUT_S, environ)
        stamp.touch()


def _resolve(packages: tuple[str, ...], overrides: str, lock: Path) -> None:
    with TemporaryDirectory() as folder:
        wanted, replaced = Path(folder) / "wanted.in", Path(folder) / "overrides.txt"
        wanted.write_text("\n".join(packages), encoding="utf-8")
        replaced.write_text(overrides, encoding="utf-8")
        _uv(["pip", "compile", *_RESOLVE, *_PLATFORM, "--override", str(replaced), str(wanted), "-o", str(lock)], _RESOLVE_TIMEOUT_S)


def _uv(arguments: list[str], timeout_s: float, environ: Mapping[str, str] | None = None) -> None:
    uv = shutil.which("uv") or str(_ROOT / ".venv-uv" / "bin" / "uv")
    subprocess.run([uv, *arguments], check=True, env=environ, timeout=timeout_s)
