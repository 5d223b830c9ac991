"""Processor time per streamed token in every process of the mesh, with a model that takes none: what serving costs beside computing.

.venv/bin/python -m bench.hot_path --step-ms 3.3 7 25
"""

import argparse
import asyncio
import time
from collections.abc import Mapping, Sequence

from bench import processes
from bench.contender import ContenderError, answers
from bench.contenders import Mesh
from bench.load import run_point
from bench.peers import PEERS
from bench.shape import Point
from deploy.local.home import Home

_PORT_BASE = 28200
_IDLE_S = 1.0


class SimMesh(Mesh):
    """A whole mesh whose one replica sleeps for the time of a step and makes tokens up."""

    def __init__(self, step_ms: float, gap_ms: float) -> None:
        super().__init__("sim", threads=1, bits="15", tls=False, port_base=_PORT_BASE)
        self._step_ms = step_ms
        self._gap_ms = gap_ms

    @property
    def home(self) -> Home:
        """A place of its own: other benchmarks may be at work."""
        return Home(PEERS.root / "home-sim")

    def environ(self) -> dict[str, str]:
        """See Mesh."""
        own = {"INFERWAY_ENGINE_RUNNER": "sim", "INFERWAY_ENGINE_SIM_STEP_MS": str(self._step_ms)}
        return super().environ() | own | {"INFERWAY_ENGINE_MESSAGE_GAP_MS": str(self._gap_ms)}

    def start(self) -> float:
        """See Mesh."""
        begin = time.monotonic()
        done = self._inferway("up", "--replicas", "1", "--port-base", str(self.port_base))
        if done.returncode or not answers(self.target()):
            raise ContenderError(f"the mesh did not start: {done.stdout[-2000:].decode(errors='replace')}")
        return time.monotonic() - begin


def measure(mesh: SimMesh, point: Point) -> tuple[dict[str, float], float]:
    """Microseconds per output token by part, this client included; and tokens per chunk."""
    before = processes.cpu_by_part_s(mesh.processes())
    time.sleep(_IDLE_S)
    begin = processes.cpu_by_part_s(mesh.processes())
    outcome = asyncio.run(run_point(mesh.target(), point, time.time_ns()))
    end = processes.cpu_by_part_s(mesh.processes())
    if outcome.num_failed:
        raise ContenderError(outcome.failure)
    spent = beyond_idle(before, begin, end, outcome.wall_s / _IDLE_S)
    spent["client"] = outcome.client_cpu_share * outcome.wall_s
    num_tokens = outcome.output_tok_s * outcome.wall_s
    return {part: 1e6 * used_s / num_tokens for part, used_s in spent.items()}, outcome.tokens_per_chunk


def beyond_idle(
    before: Mapping[str, float], begin: Mapping[str, float], end: Mapping[str, float], num_idle_times: float
) -> dict[str, float]:
    """What every part used from `begin` to `end`, less so many times what it used from `before` to `begin`.

    Parts that came or went meanwhile are left out.
    """
    parts = before.keys() & begin.keys() & end.keys()
    return {part: end[part] - begin[part] - (begin[part] - before[part]) * num_idle_times for part in parts}


def run(step_ms: float, gap_ms: float, points: Sequence[Point]) -> None:
    """One mesh, all points, one line each."""
    mesh = SimMesh(step_ms, gap_ms)
    try:
        mesh.start()
        for point in points:
            parts, tokens_per_chunk = measure(mesh, point)
            shown = "  ".join(f"{part} {used:.0f}" for part, used in sorted(parts.items(), key=lambda entry: -entry[1]) if used >= 1)
            print(f"step {step_ms:g} ms, {point}: {tokens_per_chunk:.1f} tokens per chunk; us per token: {shown}", flush=True)
    finally:
        mesh.stop()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--step-ms", type=float, nargs="+", default=[3.3, 7.0, 25.0], help="time of a step")
    parser.add_argument("--gap-ms", type=float, default=10.0, help="least time between two messages of the replica")
    parser.add_argument("--point", type=Point.parse, nargs="+", default=[Point.parse(f"128:0:400@{c}") for c in (1, 8, 32)])
    given = parser.parse_args(arguments)
    for step_ms in given.step_ms:
        run(step_ms, given.gap_ms, given.point)


if __name__ == "__main__":
    main()
