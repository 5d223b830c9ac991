"""The servers of the benchmark, each tuned as well as we know: our whole mesh, llama.cpp's server and vLLM.

All compute on the same number of threads and keep room for the same number of KV tokens in 16 bits.
"""

import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench import drafts, plan, processes
from bench.connection import Target
from bench.contender import ContenderError, Server, end
from bench.drafts import Drafts
from bench.peers import PEERS
from bench.row import OURS, PLAIN
from deploy.local import running
from deploy.local.home import Home
from deploy.local.local_keys import read_key
from deploy.local.up import MODEL

_ROOT = Path(__file__).resolve().parents[1]
_KV_TOKENS = 45056
"""32 sequences of 1,408 tokens: one GiB at 16 bits."""
_BLOCK_SIZE = 16
_MAX_SEQUENCES = 32
_MESH_TIMEOUT_S = 300.0
# Below the ports of outgoing connections, and away from the mesh that a person may have running; each mesh takes 200.
_LLAMA_CPP_PORT, _VLLM_PORT, _MESH_PORT_BASE = 27000, 27010, 27200
_LLAMA_CPP_NGRAM = "--spec-type ngram-map-k --spec-ngram-map-k-size-n 3 --spec-ngram-map-k-size-m 7"
_VLLM_NGRAM = {"method": "ngram", "num_speculative_tokens": 7, "prompt_lookup_min": 3, "prompt_lookup_max": 4}
"""Peers that guess tokens from those before, too: the best of what was tried, see docs/performance.md."""
NUMERICS = {"8": "bfloat16", "15": "float32"}
"""Bits of our kernels' activations -> the engine's `dtype` that stands for them."""
LONG_SLOTS = 6
"""llama.cpp divides its KV cache among its slots: so few leave each room for a prompt of 4,096 tokens and more."""


def llama_cpp(threads: int, slots: int = _MAX_SEQUENCES) -> Server:
    """Continuous batching is its default; Q4_0 has repacked kernels; without the bound its prompt cache grows by gigabytes."""
    options = f"-t {threads} -tb {threads} -np {slots} -c {_KV_TOKENS} --cache-ram 0 --no-webui --host 127.0.0.1"
    model = ["-m", str(PEERS.gguf_q4_0), "--port", str(_LLAMA_CPP_PORT)]
    command = [str(PEERS.llama_server), *options.split(), *model]
    return Server("llama.cpp", "Q4_0 weights, 8-bit activations", command, {}, f"http://127.0.0.1:{_LLAMA_CPP_PORT}", _log("llama.cpp"))


def llama_cpp_ngram(threads: int) -> Server:
    """The same with its own speculation."""
    return _beside(llama_cpp(threads), plan.LLAMA_CPP_NGRAM, _LLAMA_CPP_PORT, _LLAMA_CPP_NGRAM.split())


def vllm(threads: int) -> Server:
    """By default it reserves a core for its front end and computes on the rest, in a worker process that waits awake.

    Here it computes on all threads and in the engine's own process, which `uni` alone does not bring about on a CPU.
    """
    environ = {
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{threads - 1}",
        "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "OMP_NUM_THREADS": str(threads),
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "LD_PRELOAD": ":".join(str(path) for path in PEERS.preloads()),
        "PATH": f"{PEERS.vllm_python.parent}:{os.environ['PATH']}",
    }
    options = "--served-model-name model --dtype bfloat16 --max-model-len 4352 --max-num-seqs 64 --distributed-executor-backend uni"
    options += f" --host 127.0.0.1 --port {_VLLM_PORT}"
    command = [str(PEERS.vllm_python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(PEERS.bfloat16_folder), *options.split()]
    return Server("vllm", "bfloat16 weights and activations", command, environ, f"http://127.0.0.1:{_VLLM_PORT}", _log("vllm"))


def vllm_ngram(threads: int) -> Server:
    """The same with its own speculation."""
    return _beside(vllm(threads), plan.VLLM_NGRAM, _VLLM_PORT, ["--speculative-config", json.dumps(_VLLM_NGRAM)])


def _beside(server: Server, name: str, port: int, options: Sequence[str]) -> Server:
    """Another server of the same kind, with these options more, on the next port."""
    command = [str(port + 1) if part == str(port) else part for part in server.command]
    url = server.url.replace(str(port), str(port + 1))
    return dataclasses.replace(server, name=name, command=[*command, *options], url=url, log=_log(name))


PEER_SERVERS = {"llama.cpp": llama_cpp, plan.LLAMA_CPP_NGRAM: llama_cpp_ngram, "vllm": vllm, plan.VLLM_NGRAM: vllm_ngram}


@dataclass
class Mesh:
    """Our whole service as `inferway up` starts it, with one replica: edge, limits, metering and all."""

    name: str
    threads: int
    bits: str
    """Of the activations: a key of NUMERICS."""
    tls: bool
    port_base: int
    speculates: bool = True
    """As a replica does unless it is told not to."""
    numerics: str = ""
    """What the replica says of itself, once started: another path than the one asked for cannot go unnoticed."""

    @property
    def home(self) -> Home:
        return Home(PEERS.root / f"home-{self.bits}{'' if self.speculates else '-plain'}")

    def start(self) -> float:
        begin = time.monotonic()
        done = self._inferway("up", "--replicas", "1", "--port-base", str(self.port_base))
        if done.returncode:
            raise ContenderError(f"the mesh did not start: {done.stdout[-2000:].decode(errors='replace')}")
        seconds = time.monotonic() - begin
        replicas = json.loads(self._inferway("status", "--json").stdout)["replicas"]
        self.numerics = ", ".join(replica["runner"] for replica in replicas)
        if "native" not in self.numerics:
            raise ContenderError(f"{self.name} does not compute with the native kernels: {self.numerics}")
        return seconds

    def environ(self) -> dict[str, str]:
        """What the mesh and, through it, its replica are told."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("INFERWAY_")}
        plain = {} if self.speculates else {"INFERWAY_ENGINE_SPECULATIVE_TOKENS": "0"}
        return kept | {
            **plain,
            "INFERWAY_HOME": str(self.home.root),
            "INFERWAY_ENGINE_DTYPE": NUMERICS[self.bits],
            "INFERWAY_ENGINE_THREADS": str(self.threads),
            "INFERWAY_ENGINE_BLOCK_SIZE": str(_BLOCK_SIZE),
            "INFERWAY_ENGINE_NUM_BLOCKS": str(_KV_TOKENS // _BLOCK_SIZE),
            "INFERWAY_ENGINE_MAX_NUM_SEQUENCES": str(_MAX_SEQUENCES),
        }

    def target(self) -> Target:
        scheme, port = ("https", self.port_base + 1) if self.tls else ("http", self.port_base)
        ca = self.home.certs / "ca.pem" if self.tls else None
        return Target(f"{scheme}://127.0.0.1:{port}", MODEL, read_key(self.home.demo_key_file), ca)

    def processes(self) -> list[psutil.Process]:
        found = running.find(self.home)
        return processes.tree(found.supervisor.pid) if found else []

    def replica(self) -> list[psutil.Process]:
        """The engine's own process."""
        return [one for one in self.processes() if _is_engine(one)]

    def rss_mb(self) -> float:
        return processes.peak_rss_mb(self.replica())

    def drafts(self) -> Drafts | None:
        ports = [one.environ().get("INFERWAY_ENGINE_METRICS_PORT") for one in self.replica()]
        return drafts.read(f"http://127.0.0.1:{ports[0]}/metrics") if len(ports) == 1 and ports[0] else None

    def stop(self) -> None:
        processes.thaw(self.processes())
        if self._inferway("down").returncode:
            end(self.processes())

    def _inferway(self, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
        command = [str(Path(sys.executable).with_name("inferway")), *arguments]
        return subprocess.run(
            command, cwd=_ROOT, env=self.environ(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=_MESH_TIMEOUT_S
        )


def _is_engine(process: psutil.Process) -> bool:
    try:
        return "services.engine" in process.cmdline()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def _log(name: str) -> Path:
    return PEERS.root / "logs" / f"{name}.log"


def meshes(threads: int, bits: Sequence[str], tls: bool, speculation: Sequence[str] = ("on",)) -> list[Mesh]:
    """One per number of bits, of which the first has the plain name; and one of the first bits without speculation, where that is `off`."""
    names = [OURS, *(f"{OURS} {one}-bit" for one in bits[1:])] if "on" in speculation else []
    wanted = [(name, one, True) for name, one in zip(names, bits, strict=False)]
    wanted += [(PLAIN, bits[0], False)] if "off" in speculation else []
    return [
        Mesh(name, threads, one, tls, _MESH_PORT_BASE + 200 * index, speculates) for index, (name, one, speculates) in enumerate(wanted)
    ]
