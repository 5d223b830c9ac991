"""Tables of a result file, for the terminal and for docs/performance.md.

.venv/bin/python -m bench.table bench/results/engine.json
.venv/bin/python -m bench.table bench/results/engine.json --into docs/performance.md
"""

import argparse
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """One table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def rates(result: dict[str, Any]) -> str:
    """Every point: each server's rate and times, and our rate beside the best peer's."""
    ratios = {(ratio["engine"], ratio["shape"], ratio["concurrency"]): ratio for ratio in result["ratios"]}
    lines = []
    for row in result["rows"]:
        ratio = ratios.get((row["engine"], row["shape"], row["concurrency"]))
        failed = f", {row['num_failed']} failed" if row["num_failed"] else ""
        lines.append(
            [
                row["shape"],
                str(row["concurrency"]),
                row["engine"],
                f"{row['output_tok_s']:.0f}{failed}",
                f"{row['ttft_ms_p50']:.0f} / {row['ttft_ms_p95']:.0f}",
                f"{row['itl_ms_p50']:.1f} / {row['itl_ms_p95']:.1f} / {row['itl_ms_p99']:.1f}",
                f"{row['tpot_ms_p50']:.1f}",
                f"{row['tokens_per_chunk']:.1f}",
                f"{row['cached_tokens']:.0f}",
                _number(row.get("tokens_per_step"), 2),
                _share(row.get("accepted_share")),
                _beside(ratio) if ratio else "",
            ]
        )
    header = ["prompt:shared:output", "in flight", "server", "output tok/s", "TTFT p50 / p95 ms", "ITL p50 / p95 / p99 ms"]
    header += ["ms per token", "tokens per chunk", "cached tokens", "tokens per step and sequence", "accepted share"]
    return markdown([*header, "ours beside the best peer (mark)"], lines)


def _beside(ratio: dict[str, Any]) -> str:
    mark = f" ({'reached' if ratio['is_met'] else 'missed'}: {ratio['wanted']})" if ratio["wanted"] is not None else ""
    guessing = f"; {ratio['to_guessing']:.2f} x {ratio['guessing_peer']}" if ratio.get("guessing_peer") else ""
    return f"**{ratio['output_tok_s']:.2f}** x {ratio['best_peer']}{mark}{guessing}; TTFT {ratio['ttft']:.2f} x"


def servers(result: dict[str, Any]) -> str:
    """What each server computes with, how it starts, what it holds."""
    memory: dict[str, float] = {}
    numerics: dict[str, str] = {}
    for row in result["rows"]:
        memory[row["engine"]] = max(memory.get(row["engine"], 0.0), row["rss_mb"])
        numerics[row["engine"]] = row["numerics"]
    lines = [
        [name, numerics[name], _number(result["perplexity"].get(name), 3), _number(result["start_s"].get(name), 1), f"{memory[name]:.0f}"]
        for name in numerics
    ]
    return markdown(["server", "computes with", "perplexity", "start s", "peak RSS MiB"], lines)


def processors(result: dict[str, Any]) -> str:
    """Who used the processors while ours was measured."""
    lines = []
    for row in result["rows"]:
        if row["engine"].startswith("inferway"):
            shares = ", ".join(f"{part} {100 * share:.0f} %" for part, share in row["cpu_shares"].items() if share >= 0.005)
            lines.append([row["engine"], row["shape"], str(row["concurrency"]), shares])
    return markdown(["server", "prompt:shared:output", "in flight", "share of one processor"], lines)


def head_of_line(result: dict[str, Any]) -> str:
    """Gaps of short requests while a long prompt is computed."""
    lines = [
        [
            one["engine"],
            *(_number(one[name], 1) for name in ("itl_ms_p50_before", "itl_ms_p50", "itl_ms_p99", "itl_ms_max", "long_ttft_ms")),
        ]
        for one in result["head_of_line"]
    ]
    return markdown(["server", "ITL p50 before, ms", "p50", "p99", "greatest", "TTFT of the long one, ms"], lines)


def marks(result: dict[str, Any]) -> str:
    """Every mark, reached or not."""
    lines = [
        [mark["engine"], mark["what"], mark["wanted"], mark["found"], "yes" if mark["is_met"] else "**no**"] for mark in result["marks"]
    ]
    return markdown(["server", "mark", "wanted", "found", "reached"], lines)


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"


def report(result: dict[str, Any]) -> str:
    """All tables that the result has something for."""
    machine = ", ".join(f"{name} {value}" for name, value in result["machine"].items())
    parts = [f"Machine: {machine}.", rates(result), servers(result), processors(result)]
    if result["head_of_line"]:
        parts.append(head_of_line(result))
    return "\n\n".join([*parts, *filter(None, [roofline(result)]), marks(result)]) + "\n"


def roofline(result: dict[str, Any]) -> str:
    """What the machine could do and what share of it steps reach; empty where it was not measured."""
    found = result["roofline"]
    if not found:
        return ""
    reads = "; ".join(f"{threads} thread(s) {max(rates.values()):.0f} GB/s" for threads, rates in found["read_gb_s"].items())
    peaks = f"int8 products {found['int8_gop_s']:.0f} GOP/s, bfloat16 {found['bfloat16_gflop_s']:.0f} GFLOP/s on {found['threads']} threads"
    names = ("runner", "shape", "ms", "floor_ms", "bound")
    lines = [[*(str(step[name]) for name in names), f"{100 * step['share']:.0f} %"] for step in found["steps"]]
    return f"Reads: {reads}. {peaks}.\n\n" + markdown(["runner", "step", "ms", "floor ms", "bound by", "share of the floor"], lines)


def steps(result: dict[str, Any]) -> str:
    """Milliseconds by part of a step, for runners that can tell."""
    rows = [row for row in result["rows"] if row.get("parts")]
    names = list(dict.fromkeys(name for row in rows for name in row["parts"]))
    lines = [
        [row["shape"], row["runner"], f"{row['min_ms']:.2f}", *(f"{row['parts'].get(name, 0.0):.2f}" for name in names)] for row in rows
    ]
    return markdown(["step", "runner", "least ms", *names], lines) + "\n"


def into(document: str, block: str, tables: str) -> str:
    """The document with the tables between the block's two markers; ValueError when it has none."""
    pattern = re.compile(rf"(<!-- {block} -->\n).*?(<!-- /{block} -->)", re.DOTALL)
    if not pattern.search(document):
        raise ValueError(f"no <!-- {block} --> ... <!-- /{block} --> in the document")
    return pattern.sub(lambda found: f"{found[1]}{tables}{found[2]}", document)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("result", type=Path, help="of bench.engine, or of bench.engine_step")
    parser.add_argument("--into", type=Path, help="document that gets the tables between its markers")
    given = parser.parse_args(arguments)
    result = json.loads(given.result.read_text(encoding="utf-8"))
    block, tables = ("bench:engine", report(result)) if "ratios" in result else ("bench:steps", steps(result))
    print(tables)
    if given.into:
        given.into.write_text(into(given.into.read_text(encoding="utf-8"), block, tables), encoding="utf-8")


if __name__ == "__main__":
    main()
