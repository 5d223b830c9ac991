"""The command line of the self-check."""

import argparse
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from services.engine.runner import RunnerSettings, TokenLogprobs
from services.engine.runner_registry import make_runner
from services.engine.self_check.findings import Findings
from services.engine.self_check.folder import check_files, check_tokenizer
from services.engine.self_check.independence import NUM_BLOCKS, check_independence
from services.engine.self_check.numbers import check_closeness, check_finite, score
from services.kit.errors import InferwayError
from services.kit.model_store import TOKENIZER, ModelCorruptError, ModelStore, ModelVersion

FLAG = "--self-check"
_TEXT = (
    "The mill stands where the two rivers meet, a little below the bridge. In spring the water is brown and fast, and the wheel turns "
    "day and night; in August it hardly moves, and the miller mends sacks, paints the shutters and waits for rain. His grandfather built "
    "the house in 1871 with stones from the old quarry. There are three floors: the lowest for the wheel and its gears, the middle one "
    "for the stones, the upper one for the grain. When a cart arrives, the sacks go up by a chain that the wheel itself drives, and come "
    "down again as flour. Children from the village are allowed to watch if they stand behind the red line and ask only one question "
    "each. Most of them ask the same: what happens when somebody puts a hand between the stones? The miller always gives the same "
    "answer. He takes a walnut out of his pocket, drops it into the hopper, and lets them listen."
)
_LEAST_TOKENS = 135
"""As far into the text as prompts of `check_independence` reach."""


def main(arguments: Sequence[str]) -> int:
    """Check what the arguments name and print the findings; the exit status is 0 when all checks passed, else 1."""
    options = _parse(arguments)
    findings = Findings()
    settings = RunnerSettings(options.model, options.version, options.home, kernels=options.kernels, num_blocks=NUM_BLOCKS)
    if options.dtype:
        settings = replace(settings, dtype=options.dtype)
    try:
        _check(findings, options.runner, settings)
    except (InferwayError, AssertionError, RuntimeError) as error:
        findings.add("self-check", False, f"stopped: {error}")
    print(f"{sum(finding.passed for finding in findings.found)} of {len(findings.found)} checks passed")
    return 0 if findings.passed else 1


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m services.engine", description="Check a model folder on this machine.")
    parser.add_argument(FLAG, dest="model", required=True, metavar="MODEL", help="name in the model store")
    parser.add_argument("--version", default="", help="version in the store; default: the newest")
    parser.add_argument("--home", type=Path, default=Path(os.environ.get("INFERWAY_HOME", ".inferway")), help="INFERWAY_HOME")
    parser.add_argument("--kernels", type=Path, default=os.environ.get("INFERWAY_ENGINE_KERNELS") or None, help="INFERWAY_ENGINE_KERNELS")
    parser.add_argument("--runner", default="auto", choices=["auto", "cpu", "torch"], help="numeric path to check")
    parser.add_argument("--dtype", default="", choices=["", "float32", "bfloat16"], help="as INFERWAY_ENGINE_DTYPE")
    return parser.parse_args(arguments)


def _check(findings: Findings, name: str, settings: RunnerSettings) -> None:
    version = ModelStore(settings.home).get(settings.model, settings.version)
    if not check_files(findings, version):
        return
    ids = _text_ids(version)
    if not check_tokenizer(findings, version, ids, _TEXT):
        return
    ids = ids[: version.max_context_tokens]
    if len(ids) < _LEAST_TOKENS:
        findings.add(
            "context", False, f"{len(ids)} tokens of text fit the context of {version.max_context_tokens}; the checks need {_LEAST_TOKENS}"
        )
        return
    runner = make_runner(name, settings)
    findings.add("runner", True, runner.info.quality)
    try:
        scores = score(runner, ids)
        if not check_finite(findings, scores, runner.info.vocab_size) or isinstance(scores, str):
            return
        check_independence(findings, runner, ids)
    finally:
        runner.close()
    reference = _reference(settings, ids)
    if isinstance(reference, str):
        findings.add("closeness", False, f"float32: {reference}")
    else:
        check_closeness(findings, scores, reference)


def _text_ids(version: ModelVersion) -> list[int]:
    from tokenizers import Tokenizer  # Not before: a replica that only serves needs none.

    document = version.read(TOKENIZER)
    try:
        ids: list[int] = Tokenizer.from_str(document.decode()).encode(_TEXT, add_special_tokens=False).ids
    except Exception as error:  # The library raises nothing more special.
        raise ModelCorruptError(f"{version.name} {version.version}: {TOKENIZER} is no tokenizer: {error}") from error
    return ids


def _reference(settings: RunnerSettings, ids: Sequence[int]) -> list[TokenLogprobs] | str:
    """The text's log-probabilities by torch in float32."""
    runner = make_runner("torch", replace(settings, dtype="float32"))
    try:
        return score(runner, ids)
    finally:
        runner.close()
