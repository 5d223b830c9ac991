"""Computes a step although it may fail: finds the sequence with which it fails, so that the others go on as if it had not been there."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from services.engine.runner import ModelRunner, SamplingParams, SequenceSlice, StepOutput

log = logging.getLogger(__name__)

_NOBODY = 0
"""No sequence has this id."""


@dataclass(slots=True)
class StepResult:
    """What became of the slices of a step. Those in neither list were not computed and are still to be: the next step has them again."""

    computed: list[SequenceSlice] = field(default_factory=list)
    outputs: list[StepOutput] = field(default_factory=list)
    """One per slice of `computed`."""
    culprits: list[SequenceSlice] = field(default_factory=list)
    """The runner fails with each of these alone, and works without."""
    num_failed_runs: int = 0


class Bisection:
    """Runs steps, and the halves of those that fail. `before_run` is called before each call of the runner.

    A step of n sequences that fails is split into halves until a culprit is alone: at most 2 * ceil(log2(n)) + 1 further runs, none longer
    than the failed one, and one of a single token; what is left by then waits for the next step. A fault that does not come again costs
    two runs and nobody's answer.
    """

    def __init__(self, runner: ModelRunner, before_run: Callable[[], None]) -> None:
        self._runner = runner
        self._before_run = before_run

    def compute(self, step: int, slices: Sequence[SequenceSlice]) -> StepResult:
        """Compute all slices that can be computed. Raises what the runner raised when it fails with a token of nobody's, too."""
        error = self._run(group := list(slices), result := StepResult())
        if error is None:
            return result
        _log_failure(step, group, error)
        is_sound = False
        groups, num_runs = _halves(group), 2 * (len(group) - 1).bit_length() + 1
        while groups and num_runs:
            groups.sort(key=len, reverse=not result.culprits)  # The smallest first until there is a culprit, then as many others as can be.
            group, num_runs = groups.pop(), num_runs - 1
            error = self._run(group, result)
            if error is None:
                is_sound = True
            elif len(group) > 1:
                groups += _halves(group)
            else:
                if not is_sound:
                    self._probe(group[0], error)
                is_sound = True
                log.error("a step fails with one sequence", extra={"fields": {"step": step, "sequence": group[0].sequence_id}})
                result.culprits += group
        return result

    def _run(self, group: list[SequenceSlice], result: StepResult) -> Exception | None:
        self._before_run()
        try:
            result.outputs += self._runner.step(group)
        except Exception as error:  # A runner may fail in any way; the fault must not outlive the sequences that cause it.
            result.num_failed_runs += 1
            return error
        result.computed += group
        return None

    def _probe(self, culprit: SequenceSlice, error: Exception) -> None:
        """One token of nobody's, computed in the last block of a sequence that is lost anyway; raises `error` when that fails as well."""
        last = (culprit.start + len(culprit.token_ids) - 1) // self._runner.info.block_size
        table, greedy = [culprit.block_table[last]], SamplingParams(temperature=0.0)
        probe = SequenceSlice(_NOBODY, [0], 0, table, greedy, samples=True, context=[0], num_prompt=1)
        result = StepResult()
        if self._run([probe], result) is not None or result.outputs[0].error is not None:
            raise error


def _halves(group: list[SequenceSlice]) -> list[list[SequenceSlice]]:
    """Both halves, the one to try first at the end; a single slice comes back as it is, to be tried again alone."""
    middle = len(group) // 2
    return [half for half in (group[middle:], group[:middle]) if half]


def _log_failure(step: int, group: list[SequenceSlice], error: Exception) -> None:
    sizes = {str(part.sequence_id): len(part.token_ids) for part in group}
    log.error("a step failed", exc_info=error, extra={"fields": {"step": step, "tokens_by_sequence": sizes}})
