"""Pictures of a result file, drawn by an environment of its own that `make bench-peers` makes.

.bench/plots/bin/python bench/plots.py bench/results/engine.json docs/images
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib import pyplot  # type: ignore[import-not-found, unused-ignore]

_COLOURS = {
    "inferway": "#1b6ca8",
    "inferway 15-bit": "#7fb2d6",
    "inferway-plain": "#9db8cc",
    "llama.cpp": "#c96f2e",
    "llama.cpp-ngram": "#e3b08a",
    "vllm": "#6a9a4b",
    "vllm-ngram": "#b4cfa3",
}
_PANELS = (
    ("rates", "output tokens per second", "output_tok_s"),
    ("first_token", "time to the first token, p50, ms", "ttft_ms_p50"),
    ("gaps", "gap between tokens, p95, ms", "itl_ms_p95"),
)


def draw(result: dict[str, Any], title: str, field: str, path: Path) -> None:
    """One panel per prompt shape: bars of every server over the number of requests in flight."""
    shapes = list(dict.fromkeys(row["shape"] for row in result["rows"]))
    engines = list(dict.fromkeys(row["engine"] for row in result["rows"]))
    figure, panels = pyplot.subplots(1, len(shapes), figsize=(4.6 * len(shapes), 3.8), squeeze=False, layout="constrained")
    for panel, shape in zip(panels[0], shapes, strict=True):
        rows = [row for row in result["rows"] if row["shape"] == shape]
        counts = sorted({row["concurrency"] for row in rows})
        width = 0.8 / len(engines)
        for index, engine in enumerate(engines):
            values = {row["concurrency"]: row[field] for row in rows if row["engine"] == engine}
            places = [at + width * (index - (len(engines) - 1) / 2) for at in range(len(counts))]
            panel.bar(places, [values.get(count) or 0 for count in counts], width, label=engine, color=_COLOURS.get(engine))
        panel.set_xticks(range(len(counts)), [str(count) for count in counts])
        panel.set_title(f"prompt:shared:output {shape}", fontsize=10)
        panel.set_xlabel("requests in flight")
        panel.spines[["top", "right"]].set_visible(False)
    panels[0][0].set_ylabel(title)
    panels[0][0].legend(frameon=False, fontsize=9)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("result", type=Path)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args(arguments)
    result = json.loads(given.result.read_text(encoding="utf-8"))
    given.folder.mkdir(parents=True, exist_ok=True)
    for name, title, field in _PANELS:
        draw(result, title, field, given.folder / f"engine_{name}.png")


if __name__ == "__main__":
    main()
