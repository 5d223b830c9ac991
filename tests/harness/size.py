"""Prints files, lines and function sizes per package: the budgets of the house style, measured."""

import ast
import pathlib
import statistics

PACKAGES = [
    "services/kit",
    "services/gateway",
    "services/router",
    "services/scheduler",
    "services/engine",
    "services/metering",
    "cli",
    "deploy",
    "tests",
    "bench",
]


def measure(package: pathlib.Path) -> tuple[list[int], list[int]]:
    """Lines of every file and of every function below a package."""
    files, functions = [], []
    for path in sorted(package.rglob("*.py")):
        source = path.read_text()
        files.append(source.count("\n"))
        nodes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
        functions += [(node.end_lineno or node.lineno) - node.lineno + 1 for node in nodes]
    return files, functions


def percentile(values: list[int], share: float) -> int:
    """The value below which `share` of all values lie."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def main() -> None:
    """One line per package."""
    print(f"{'package':20} {'files':>6} {'lines':>7} {'file median/max':>16} {'functions':>10} {'median/p90/max':>15}")
    for name in PACKAGES:
        files, functions = measure(pathlib.Path(name))
        if not files:
            continue
        functions = functions or [0]
        file_sizes = f"{int(statistics.median(files))}/{max(files)}"
        sizes = f"{int(statistics.median(functions))}/{percentile(functions, 0.9)}/{max(functions)}"
        print(f"{name:20} {len(files):6} {sum(files):7} {file_sizes:>16} {len(functions):10} {sizes:>15}")


if __name__ == "__main__":
    main()
