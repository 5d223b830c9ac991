"""Runners by name; each factory imports its back end when it is called, so that a `sim` replica never loads torch."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from services.engine.runner import ModelRunner, RunnerSettings

log = logging.getLogger(__name__)

RunnerFactory = Callable[[RunnerSettings], ModelRunner]


def _torch_runner(settings: RunnerSettings) -> ModelRunner:
    from services.engine.torch_runner.runner import TorchRunner

    return TorchRunner.load(settings)


def _cpu_runner(settings: RunnerSettings) -> ModelRunner:
    """The native kernels, or torch where they cannot run; the log and the runner's quality then say why and what would mend it."""
    from services.engine.cpu_runner.instruction_set import NoKernelsError
    from services.engine.cpu_runner.runner import CpuRunner

    try:
        return CpuRunner.load(settings)
    except NoKernelsError as error:
        log.warning("the torch runner serves instead of the native kernels: %s; to mend: %s", error, error.remedy)
        runner = _torch_runner(settings)
        runner.info = replace(
            runner.info, quality=f"slow, torch instead of native kernels: {error}; to mend: {error.remedy}; {runner.info.quality}"
        )
        return runner


def _auto_runner(settings: RunnerSettings) -> ModelRunner:
    return _cpu_runner(settings) if settings.device == "cpu" else _torch_runner(settings)


def _sim_runner(settings: RunnerSettings) -> ModelRunner:
    from services.engine.sim_runner import SimRunner

    return SimRunner.load(settings)


RUNNERS: Mapping[str, RunnerFactory] = MappingProxyType(
    {"auto": _auto_runner, "cpu": _cpu_runner, "sim": _sim_runner, "torch": _torch_runner}
)


def make_runner(name: str, settings: RunnerSettings) -> ModelRunner:
    """Build the runner called `name`, ready for `warm_up`. ValueError names the known runners; a bad model raises the store's errors."""
    factory = RUNNERS.get(name)
    if factory is None:
        raise ValueError(f"unknown runner {name!r}; known: {', '.join(sorted(RUNNERS))}")
    return factory(settings)
