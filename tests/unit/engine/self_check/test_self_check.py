"""The self-check passes a sound model and finds each kind of fault."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import gguf
import pytest

from services.engine.model.importer import import_model
from services.engine.runner import SequenceSlice, StepOutput, TokenLogprobs
from services.engine.self_check.command import main
from services.engine.self_check.findings import Findings
from services.engine.self_check.independence import NUM_BLOCKS, check_independence
from services.engine.self_check.numbers import check_closeness, check_finite, score
from services.engine.sim_runner import SimRunner
from services.kit.model_store import WEIGHTS, ModelStore
from tests.harness.batching import sim_runner
from tests.harness.cpu_kernels import share_kernels
from tests.harness.tiny_gguf import TinyGguf

TEXT = [1 + (at * at + 3 * at) % 190 for at in range(150)]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A store with a sound tiny model."""
    tiny = TinyGguf(matrix_type=gguf.GGMLQuantizationType.Q8_0)
    import_model(tiny.write(tmp_path / "tiny.gguf"), "tiny", share_kernels(tmp_path))
    return tmp_path


@pytest.mark.timeout(180)
@pytest.mark.parametrize("runner", ["auto", "torch"])
def test_main_sound_model_passes_every_check(home: Path, capsys: pytest.CaptureFixture[str], runner: str) -> None:
    status = main(["--self-check", "tiny", "--home", str(home), "--runner", runner])
    lines = capsys.readouterr().out.splitlines()
    assert status == 0, lines
    names = "files tokenizer runner finite determinism batch cache chunks drafts preemption resumption blocks closeness"
    assert [line.split()[1] for line in lines[:-1]] == names.split()
    assert all(line.startswith("pass  ") for line in lines[:-1])
    assert lines[-1] == "13 of 13 checks passed"


def test_main_altered_weights_fail_before_anything_is_loaded(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = ModelStore(home).get("tiny").path / WEIGHTS
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.chmod(0o644)
    path.write_bytes(content)
    assert main(["--self-check", "tiny", "--home", str(home)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("FAIL  files")
    assert lines[1:] == ["0 of 1 checks passed"]


def test_main_unknown_model_fails_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--self-check", "nothing", "--home", str(tmp_path)]) == 1
    assert "FAIL  self-check" in capsys.readouterr().out


class Faulty:
    """A sim runner whose outputs something is done to."""

    def __init__(self, spoil: Callable[[int, Sequence[SequenceSlice], list[StepOutput]], None]) -> None:
        self._inner: SimRunner = sim_runner(NUM_BLOCKS, block_size=16)
        self.info = self._inner.info
        self._spoil = spoil
        self._num_steps = 0

    def step(self, slices: Sequence[SequenceSlice]) -> list[StepOutput]:
        outputs = self._inner.step(slices)
        self._num_steps += 1
        self._spoil(self._num_steps, slices, outputs)
        return outputs

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        self._inner.copy_blocks(pairs)

    def warm_up(self) -> None: ...

    def close(self) -> None: ...


def failed(runner: Faulty) -> set[str]:
    findings = Findings()
    check_independence(findings, runner, TEXT)
    return {finding.name for finding in findings.found if not finding.passed}


def change(outputs: list[StepOutput], offset: int) -> None:
    for output in outputs:
        if output.token_id is not None:
            output.token_id = 1 + (output.token_id + offset) % 190


def test_check_independence_of_a_sound_runner_finds_nothing() -> None:
    assert failed(Faulty(lambda step, slices, outputs: None)) == set()


def test_check_independence_finds_a_runner_that_looks_at_batch_mates() -> None:
    found = failed(Faulty(lambda step, slices, outputs: change(outputs, len(slices) - 1)))
    assert {"batch mates", "chunks", "preemption", "resumption"} <= found
    assert "determinism" not in found


def test_check_independence_finds_a_runner_that_is_not_deterministic() -> None:
    assert "determinism" in failed(Faulty(lambda step, slices, outputs: change(outputs, step)))


def test_check_independence_finds_a_runner_that_minds_where_a_slice_begins() -> None:
    def spoil(step: int, slices: Sequence[SequenceSlice], outputs: list[StepOutput]) -> None:
        change([output for part, output in zip(slices, outputs, strict=True) if 0 < part.start < part.num_prompt], 1)

    found = failed(Faulty(spoil))
    assert {"chunks", "cache hits"} <= found
    assert not found & {"determinism", "batch mates"}


def test_check_independence_finds_a_runner_that_minds_what_stands_behind_in_a_slice() -> None:
    def spoil(step: int, slices: Sequence[SequenceSlice], outputs: list[StepOutput]) -> None:
        change([output for part, output in zip(slices, outputs, strict=True) if part.num_drafts], 1)

    assert failed(Faulty(spoil)) == {"drafts"}


def test_check_independence_finds_a_runner_that_takes_no_draft_but_says_so() -> None:
    def spoil(step: int, slices: Sequence[SequenceSlice], outputs: list[StepOutput]) -> None:
        for output in outputs:
            output.further = []

    assert failed(Faulty(spoil)) == {"drafts"}


def test_score_and_finite_report_the_error_of_a_runner() -> None:
    def spoil(step: int, slices: Sequence[SequenceSlice], outputs: list[StepOutput]) -> None:
        outputs[0].error = "the model's logits are not finite"

    findings = Findings()
    assert not check_finite(findings, score(Faulty(spoil), TEXT), 200)
    assert "not finite" in findings.found[0].detail
    assert not check_finite(findings, [TokenLogprobs(1, math.nan)], 200)


def shifted(by: float) -> list[TokenLogprobs]:
    return [TokenLogprobs(token, -1.0 + by, ((token, -1.0 + by), (3, -2.0 - by))) for token in range(10, 30)]


@pytest.mark.parametrize(("by", "passed"), [(0.0, True), (0.01, True), (0.05, False), (-0.05, False)])
def test_check_closeness_bounds_the_drift_of_perplexity(by: float, passed: bool) -> None:
    assert check_closeness(Findings(), shifted(by), shifted(0.0)) == passed


def test_check_closeness_bounds_other_likeliest_tokens() -> None:
    other = [TokenLogprobs(each.token_id, each.logprob, ((3, -0.99), (each.token_id, -1.0))) for each in shifted(0.0)]
    findings = Findings()
    assert not check_closeness(findings, other, shifted(0.0))
    assert "same likeliest token at 0.0 %" in findings.found[0].detail
