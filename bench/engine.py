"""Our whole mesh beside llama.cpp's server and vLLM on this machine, in turns: what `make bench-engine` runs.

    .venv/bin/python -m bench.engine --quick
    .venv/bin/python -m bench.engine --points 128:0:64@8 --points 1024:0:64@8 --repeats 3 --engines inferway,vllm

Needs the peers (`make bench-peers`). Writes bench/results/engine.json and prints the tables. Bounded in time; Ctrl-C ends all servers.
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from bench import head_of_line, perplexity, plan, processes, table
from bench.contender import Contender, ContenderError, wake
from bench.contenders import LONG_SLOTS, NUMERICS, PEER_SERVERS, Mesh, llama_cpp, meshes
from bench.peers import LLAMA_CPP, PEERS, VLLM
from bench.perplexity import PerplexityError
from bench.replica_start import replica_start_s
from bench.result import FOLDER, ROOFLINE, Result, machine
from bench.rounds import Quiet, Rounds
from bench.row import OURS
from bench.shape import Point
from deploy.local.up import MODEL

_ROOT = Path(__file__).resolve().parents[1]
_ROOFLINE_TIMEOUT_S = 300
_STARTS = 3


def contenders(given: argparse.Namespace) -> list[Contender]:
    """Those that were asked for, ours first."""
    wanted = given.engines.split(",")
    ours = meshes(given.threads, given.numerics.split(","), given.tls, given.speculation.split(",")) if OURS in wanted else []
    return [*ours, *(make(given.threads) for name, make in PEER_SERVERS.items() if name in wanted)]


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
        if isinstance(one, Mesh) and plan.has_looks(one.name):
            seconds = sorted(replica_start_s(one.environ(), MODEL, PEERS.root / "logs" / "replica.log") for _ in range(_STARTS))
            result.start_s[one.name] = round(seconds[_STARTS // 2], 2)
            say(f"{one.name}: a replica is ready after {seconds[_STARTS // 2]:.1f} s")


def measure_roofline(threads: int, say: Callable[[str], None]) -> None:
    """What the machine itself can do, by a process of its own; its file becomes a part of the result."""
    command = [sys.executable, "-m", "bench.roofline", "--threads", str(threads), "--json", str(ROOFLINE)]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, timeout=_ROOFLINE_TIMEOUT_S)
    say(f"roofline in {ROOFLINE.name}" if done.returncode == 0 else f"! no roofline: {done.stderr[-300:].decode(errors='replace')}")


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
    result = Result(given.json, _method(given, repeats), machine())
    with started(servers, result, say) as running:
        takes_part = plan.takes_part if given.points is None else plan.everywhere
        rounds = Rounds(running, Quiet(given.quiet, given.patience_s), say, deadline, takes_part)
        for point in given.points or plan.points(given.quick, given.text):
            result.rows += rounds.measure([point], 1 if point.shape.is_text and not given.points else repeats)
            result.write()
        for one in rounds.contenders:
            if plan.has_looks(one.name) and not given.no_looks:
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
        "requests": "closed loop, greedy, token-id prompts (random, or pieces of text), ignore_eos, streamed /v1/completions",
        "route": "ours through the whole mesh: edge with TLS" if given.tls else "ours through the whole mesh: edge, limits, metering",
        "quiet_limit": given.quiet,
        "priority": given.priority,
        "peers": [*LLAMA_CPP.packages, *VLLM.packages],
    }


def _numerics(text: str) -> str:
    if not set(text.split(",")) <= set(NUMERICS):
        raise argparse.ArgumentTypeError(f"one or more of {', '.join(NUMERICS)}, with commas between")
    return text


def _speculation(text: str) -> str:
    if not set(text.split(",")) <= {"on", "off"}:
        raise argparse.ArgumentTypeError("on, off, or on,off")
    return text


def arguments_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    point = "[text:]PROMPT:SHARED:OUTPUT@IN-FLIGHT"
    parser.add_argument("--points", action="append", type=Point.parse, metavar=point, help="default: all that have a mark")
    parser.add_argument("--text", action="store_true", help="some points with prompts of text, too")
    parser.add_argument("--speculation", type=_speculation, default="on", help="on, off or both (a mesh each): on,off")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--engines", default=",".join((OURS, *PEER_SERVERS)))
    parser.add_argument("--quick", action="store_true", help="four points, once each")
    parser.add_argument("--numerics", type=_numerics, default="8", help="bits of our activations: 8, 15 or both (a mesh each): 8,15")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--tls", action="store_true", help="reach our edge by https")
    parser.add_argument("--quiet", type=float, default=0.08, help="most that others may take of one processor")
    parser.add_argument("--patience-s", type=float, default=20.0, help="longest wait for others to be quiet, per measurement")
    parser.add_argument("--priority", action="store_true", help="put servers and client before all others on a busy machine (root)")
    parser.add_argument("--time-limit-min", type=float, default=21.0, help="begin no further point after so many minutes")
    parser.add_argument("--no-looks", action="store_true", help="rates only: no perplexity, long prompts and starts")
    parser.add_argument("--publish", action="store_true", help="put tables and pictures into docs/; means --text --speculation on,off")
    parser.add_argument("--json", type=Path, default=FOLDER / "engine.json")
    given = parser.parse_args(arguments)
    if given.publish:
        given.text, given.speculation = True, "on,off"
    return given


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
