"""Our whole mesh beside llama.cpp's server and vLLM on this machine, in turns: what `make bench-engine` runs.

    .venv/bin/python -m bench.engine --quick
    .venv/bin/python -m bench.engine --points 128:0:64@8 --points 1024:0:64@8 --repeats 3 --engines inferway,vllm

Needs the peers (`make bench-peers`). Writes bench/results/engine.json and prints the tables. Bounded in time; Ctrl-C ends all servers.
"""

import argparse
import asyncio
import datetime
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from bench import head_of_line, marks, perplexity, processes, table
from bench.contender import Contender, ContenderError, Server, wake
from bench.contenders import LONG_SLOTS, NUMERICS, Mesh, llama_cpp, meshes, vllm
from bench.head_of_line import HeadOfLine
from bench.peers import LLAMA_CPP, PEERS, VLLM
from bench.perplexity import PerplexityError
from bench.replica_start import replica_start_s
from bench.rounds import Quiet, Rounds
from bench.row import OURS, Row, judge, ratios
from bench.shape import Point
from deploy.local.up import MODEL

_ROOT = Path(__file__).resolve().parents[1]
_RESULTS = _ROOT / "bench" / "results"
_ROOFLINE = _RESULTS / "roofline.json"
_ROOFLINE_TIMEOUT_S = 300
_STARTS = 3


@dataclass
class Result:
    """All that a session finds; what of it is there already is written after every point."""

    path: Path
    method: dict[str, Any]
    machine: dict[str, Any]
    rows: list[Row] = field(default_factory=list)
    start_s: dict[str, float] = field(default_factory=dict)
    mesh_start_s: dict[str, float] = field(default_factory=dict)
    perplexity: dict[str, float] = field(default_factory=dict)
    head_of_line: list[HeadOfLine] = field(default_factory=list)

    def content(self) -> dict[str, Any]:
        """As it is written: plain values, None for a number that is none."""
        found = {
            "rows": [asdict(row) for row in self.rows],
            "ratios": [asdict(ratio) for ratio in ratios(self.rows)],
            "marks": [asdict(mark) for mark in judge(self.rows, self.start_s)],
            "start_s": self.start_s,
            "mesh_start_s": self.mesh_start_s,
            "perplexity": self.perplexity,
            "head_of_line": [asdict(one) for one in self.head_of_line],
            "machine": self.machine,
            "roofline": json.loads(_ROOFLINE.read_text(encoding="utf-8")) if _ROOFLINE.exists() else None,
            "method": self.method,
        }
        plain: dict[str, Any] = _without_nan(found)
        return plain

    def write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self.content(), indent=1) + "\n", encoding="utf-8")


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nan(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(one) for one in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def machine() -> dict[str, Any]:
    """What was measured on, without names."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        facts = dict(line.split(":", 1) for line in file.read().split("\n\n")[0].splitlines() if ":" in line)
    named = {name.strip(): value.strip() for name, value in facts.items()}
    flags = [flag for flag in ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8") if flag in named.get("flags", "").split()]
    return {
        "cpu": f"{named.get('model name', 'unknown')}, family {named.get('cpu family')}, model {named.get('model')}",
        "cpus": os.cpu_count(),
        "features": " ".join(flags),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "load_at_start": round(os.getloadavg()[0], 2),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def contenders(given: argparse.Namespace) -> list[Contender]:
    """Those that were asked for, ours first."""
    wanted = given.engines.split(",")
    found: list[Contender] = [*meshes(given.threads, given.numerics.split(","), given.tls)] if OURS in wanted else []
    peers: dict[str, Callable[[int], Server]] = {"llama.cpp": llama_cpp, "vllm": vllm}
    return found + [make(given.threads) for name, make in peers.items() if name in wanted]


@contextmanager
def started(all_of_them: Sequence[Contender], result: Result, say: Callable[[str], None]) -> Iterator[list[Contender]]:
    """Those servers that start, each warm and stopped while the next one starts; all are ended whatever happens."""
    running: list[Contender] = []
    try:
        for one in all_of_them:
            try:
                seconds = one.start()
            except ContenderError as error:
                say(f"! {error}; it is left out")
                continue
            starts = result.mesh_start_s if isinstance(one, Mesh) else result.start_s
            starts[one.name] = round(seconds, 2)
            say(f"{one.name} answers after {seconds:.1f} s ({one.numerics})")
            if result.method["priority"]:
                processes.prefer([psutil.Process(), *one.processes()])
            processes.freeze(one.processes())
            running.append(one)
        yield running
    finally:
        for one in all_of_them:
            one.stop()


def measure_starts(all_of_them: Sequence[Contender], result: Result, say: Callable[[str], None]) -> None:
    """Our replicas alone, as the peers are alone: the median of some starts. When nothing else runs."""
    for one in all_of_them:
        if isinstance(one, Mesh):
            seconds = sorted(replica_start_s(one.environ(), MODEL, PEERS.root / "logs" / "replica.log") for _ in range(_STARTS))
            result.start_s[one.name] = round(seconds[_STARTS // 2], 2)
            say(f"{one.name}: a replica is ready after {seconds[_STARTS // 2]:.1f} s")


def measure_roofline(threads: int, say: Callable[[str], None]) -> None:
    """What the machine itself can do, by a process of its own; its file becomes a part of the result."""
    command = [sys.executable, "-m", "bench.roofline", "--threads", str(threads), "--json", str(_ROOFLINE)]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, timeout=_ROOFLINE_TIMEOUT_S)
    say(f"roofline in {_ROOFLINE.name}" if done.returncode == 0 else f"! no roofline: {done.stderr[-300:].decode(errors='replace')}")


def look_at(one: Contender, threads: int, result: Result, say: Callable[[str], None]) -> None:
    """What is measured of a server alone."""
    try:
        wake(one)
        measure_perplexity(one, threads, result, say)
        measure_head_of_line(one, threads, result, say)
    except ContenderError as error:
        say(f"! {error}")
    processes.freeze(one.processes())


def measure_perplexity(one: Contender, threads: int, result: Result, say: Callable[[str], None]) -> None:
    """Of a server that is awake; one that cannot tell is left out, loudly."""
    try:
        texts = perplexity.windows(PEERS)
        found = perplexity.of_llama_cpp(PEERS, threads) if one.name == "llama.cpp" else perplexity.over_the_wire(one.target(), texts)
        result.perplexity[one.name] = round(found, 4)
        say(f"{one.name}: perplexity {found:.3f}")
    except PerplexityError as error:
        say(f"! {one.name}: no perplexity: {error}")


def measure_head_of_line(one: Contender, threads: int, result: Result, say: Callable[[str], None]) -> None:
    """llama.cpp gets a server of its own, whose slots are long enough; others are measured as they stand."""
    server: Contender = llama_cpp(threads, LONG_SLOTS) if one.name == "llama.cpp" else one
    if server is not one:
        one.stop()
        server.start()
        if result.method["priority"]:
            processes.prefer(server.processes())
    try:
        found = asyncio.run(head_of_line.measure(one.name, server.target()))
    finally:
        if server is not one:
            server.stop()
    result.head_of_line.append(found)
    say(f"{one.name}: gaps during a long prompt p99 {found.itl_ms_p99} ms, before p50 {found.itl_ms_p50_before} ms {found.failure}")


def run(given: argparse.Namespace, say: Callable[[str], None]) -> Result:
    """Everything in order: starts, rates in turns, then the looks at each server alone."""
    deadline = time.monotonic() + 60 * given.time_limit_min
    servers, repeats = contenders(given), 1 if given.quick else given.repeats
    names = given.points or (list(marks.QUICK) if given.quick else [str(point) for point in marks.points()])
    result = Result(given.json, _method(given, repeats), machine())
    with started(servers, result, say) as running:
        rounds = Rounds(running, Quiet(given.quiet, given.patience_s), say, deadline)
        for name in names:
            result.rows += rounds.measure([Point.parse(name)], repeats)
            result.write()
        for one in () if given.no_looks else rounds.contenders:
            look_at(one, given.threads, result, say)
    if not given.no_looks:
        measure_starts(running, result, say)
        measure_roofline(given.threads, say)
    result.write()
    return result


def publish(result: Path) -> None:
    """Put the tables into the document and draw its pictures."""
    document, images = _ROOT / "docs" / "performance.md", _ROOT / "docs" / "images"
    tables = table.report(json.loads(result.read_text(encoding="utf-8")))
    document.write_text(table.into(document.read_text(encoding="utf-8"), "bench:engine", tables), encoding="utf-8")
    drawer = [str(PEERS.root / "plots" / "bin" / "python"), str(_ROOT / "bench" / "plots.py")]
    subprocess.run([*drawer, str(result), str(images)], check=True, timeout=120)


def _method(given: argparse.Namespace, repeats: int) -> dict[str, Any]:
    return {
        "repeats": repeats,
        "threads": given.threads,
        "requests": "closed loop, greedy, token-id prompts, ignore_eos, streamed /v1/completions",
        "route": "ours through the whole mesh: edge with TLS" if given.tls else "ours through the whole mesh: edge, limits, metering",
        "quiet_limit": given.quiet,
        "priority": given.priority,
        "peers": [LLAMA_CPP, VLLM],
    }


def _numerics(text: str) -> str:
    if not set(text.split(",")) <= set(NUMERICS):
        raise argparse.ArgumentTypeError(f"one or more of {', '.join(NUMERICS)}, with commas between")
    return text


def arguments_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--points", action="append", metavar="PROMPT:SHARED:OUTPUT@IN-FLIGHT", help="default: all that have a mark")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--engines", default="inferway,llama.cpp,vllm")
    parser.add_argument("--quick", action="store_true", help="four points, once each")
    parser.add_argument("--numerics", type=_numerics, default="8", help="bits of our activations: 8, 15 or both (a mesh each): 8,15")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--tls", action="store_true", help="reach our edge by https")
    parser.add_argument("--quiet", type=float, default=0.08, help="most that others may take of one processor")
    parser.add_argument("--patience-s", type=float, default=20.0, help="longest wait for others to be quiet, per measurement")
    parser.add_argument("--priority", action="store_true", help="put servers and client before all others on a busy machine (root)")
    parser.add_argument("--time-limit-min", type=float, default=23.0, help="begin no further point after so many minutes")
    parser.add_argument("--no-looks", action="store_true", help="rates only: no perplexity, long prompts and starts")
    parser.add_argument("--publish", action="store_true", help="put tables and pictures into docs/")
    parser.add_argument("--json", type=Path, default=_RESULTS / "engine.json")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    given = arguments_of(arguments)
    if not PEERS.are_installed() and given.engines != OURS:
        sys.exit("The peers are not installed; run: make bench-peers")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    begin = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - begin:6.0f} s  {text}", flush=True)

    try:
        result = run(given, say)
    except ContenderError as error:
        sys.exit(str(error))
    print("\n" + table.report(result.content()))
    if given.publish:
        publish(given.json)


if __name__ == "__main__":
    main()
