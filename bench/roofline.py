"""What this machine could do, and which share of it the CPU kernels reach: read bandwidth, rates of products, steps against their floor.

    .venv/bin/python -m bench.roofline --threads 2 --json bench/results/roofline.json

Every figure is the best of many short runs, so that foreign load costs time rather than truth.
"""

import argparse
import json
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from ctypes import CDLL, c_double, c_int32, c_int64
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bench.engine_step import CPU_RUNNERS, SHAPES, Shape, cpu_runner, step_times
from services.engine.cpu_runner.native import Planes
from services.engine.model.card import load_card
from services.engine.model.importer import import_card
from services.engine.runner import ModelRunner

_ROOT = Path(__file__).resolve().parents[1]
_SOURCE = Path(__file__).with_suffix(".cpp")
_READS_MB = (84, 135)
_PRODUCT = (3072, 576)
"""Outputs and inputs of the product that rates are quoted for: gate and up of the small model."""
_ROWS = (1, 8, 32, 128, 1024)
_REPEATS = 60
# SmolLM2-135M-Instruct as the kernels keep it: weights in layers and in the head, their bytes, keys and values per token.
_LAYER_WEIGHTS, _HEAD_WEIGHTS = 106_168_320, 28_311_552
_LAYER_BYTES, _HEAD_BYTES, _KV_BYTES = 66_355_200, 30_081_024, 23_040


def measure(threads: int = 2, home: Path = _ROOT / ".inferway" / "test-models") -> dict[str, Any]:
    """All figures: GB/s, G(FL)OP/s, milliseconds, and shares of the floor between 0 and 1."""
    library = _library()
    found: dict[str, Any] = {
        "machine": {"cpu": platform.processor() or platform.machine(), "cpus": os.cpu_count(), "load": round(os.getloadavg()[0], 1)},
        "threads": threads,
        "read_gb_s": {str(count): {str(mb): _read(library, mb, count) for mb in _READS_MB} for count in sorted({1, threads})},
        "int8_gop_s": _registers(library, 0, threads),
        "bfloat16_gflop_s": _registers(library, 1, threads),
        "products": [*_own_products(library, threads), *_torch_products(threads)],
    }
    bandwidth, peak = max(found["read_gb_s"][str(threads)].values()), found["int8_gop_s"]
    version = import_card(load_card(_ROOT / "models" / "smollm2-135m-instruct.yaml"), home)
    found["steps"] = []
    for name, dtype in CPU_RUNNERS.items():
        runner = cpu_runner(version, home, dtype, threads)
        planes = Planes.TWO if dtype == "float32" else Planes.ONE
        found["steps"] += [_step(name, runner, shape, planes, bandwidth, peak) for shape in SHAPES]
        runner.close()
    return found


def _library() -> CDLL:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "roofline.so"
        flags = ("-std=c++20", "-O3", "-march=native", "-fPIC", "-shared", "-pthread", "-Wno-psabi")
        subprocess.run([os.environ.get("CXX", "c++"), *flags, str(_SOURCE), "-o", str(path)], check=True, timeout=300)
        library = CDLL(str(path))
    for name, arguments in (("read", [c_int64, c_int32, c_int32]), ("registers", [c_int32] * 3), ("product", [c_int32] * 6)):
        function = getattr(library, f"roofline_{name}")
        function.restype, function.argtypes = c_double, arguments
    return library


def _read(library: CDLL, mb: int, threads: int) -> float:
    return round(float(library.roofline_read(mb * 1_000_000, threads, 40)) / 1e9, 1)


def _registers(library: CDLL, bfloat16: int, threads: int) -> float:
    return round(float(library.roofline_registers(bfloat16, threads, _REPEATS)) / 1e9, 1)


def _own_products(library: CDLL, threads: int) -> list[dict[str, Any]]:
    return [
        _rate(f"cpu {planes.num_bits} bits", rows, library.roofline_product(planes, *_PRODUCT, rows, threads, _repeats(rows)) / 1e9)
        for planes in Planes
        for rows in _ROWS
    ]


def _torch_products(threads: int) -> list[dict[str, Any]]:
    """The same product by oneDNN: bfloat16 weights laid out once, and int8 without any scale."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    onednn = torch.ops.mkldnn
    outputs, inputs = _PRODUCT
    weight = torch.randn(outputs, inputs).bfloat16()
    whole = torch.randint(-127, 127, (inputs, outputs), dtype=torch.int8)
    found = []
    with torch.inference_mode():
        for rows in _ROWS:
            x, numbers = torch.randn(rows, inputs).bfloat16(), torch.randint(-127, 127, (rows, inputs), dtype=torch.int8)
            fine = partial(onednn._linear_pointwise, x, onednn._reorder_linear_weight(weight, rows), None, "none", [], "")
            for kernel, run in (("oneDNN bfloat16, prepacked", fine), ("torch int8, no scales", partial(torch._int_mm, numbers, whole))):
                found.append(_rate(kernel, rows, 2 * rows * outputs * inputs / 1e9 / _least(run, _repeats(rows))))
    torch.set_num_threads(before)
    return found


def _repeats(rows: int) -> int:
    return max(8, _REPEATS // max(1, rows // 8))


def _least(run: Callable[[], object], repeats: int) -> float:
    best = float("inf")
    for _ in range(repeats):
        begin = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - begin)
    return best


def _rate(kernel: str, rows: int, gop_s: float) -> dict[str, Any]:
    return {"kernel": kernel, "rows": rows, "gop_s": round(gop_s, 1)}


def _step(name: str, runner: ModelRunner, shape: Shape, planes: Planes, bandwidth: float, peak: float) -> dict[str, Any]:
    """The floor of a step: all weights and keys read once, or all products at the peak, whichever takes longer."""
    rows = shape.batch * shape.tokens
    memory = (_LAYER_BYTES + _HEAD_BYTES + shape.batch * shape.context * _KV_BYTES) / (bandwidth * 1e6)
    compute = 2 * planes * (_LAYER_WEIGHTS * rows + _HEAD_WEIGHTS * shape.batch) / (peak * 1e6) if peak else 0.0
    least = min(step_times(runner, shape, 5 if rows > 32 else 30))
    floor = max(memory, compute)
    return {
        "runner": name,
        "shape": shape.name,
        "ms": round(least, 2),
        "floor_ms": round(floor, 2),
        "bound": "memory" if memory > compute else "products",
        "share": round(floor / least, 2),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--json", type=Path, help="where to write the figures")
    given = parser.parse_args(arguments)
    text = json.dumps(measure(given.threads), indent=1)
    print(text)
    if given.json:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
