"""What a session of the benchmark has found, as it is written to a file for everybody to read."""

import datetime
import json
import math
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from bench.head_of_line import HeadOfLine
from bench.row import Row, judge, ratios

FOLDER = Path(__file__).resolve().parent / "results"
ROOFLINE = FOLDER / "roofline.json"


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
            "roofline": json.loads(ROOFLINE.read_text(encoding="utf-8")) if ROOFLINE.exists() else None,
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
