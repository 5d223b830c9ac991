"""Runners by name; each factory imports its back end when it is called, so that a `sim` replica never loads torch."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from services.engine.runner import ModelRunner, RunnerSettings

RunnerFactory = Callable[[RunnerSettings], ModelRunner]


def _torch_runner(settings: RunnerSettings) -> ModelRunner:
    from services.engine.torch_runner.runner import TorchRunner

    return TorchRunner.load(settings)


def _sim_runner(settings: RunnerSettings) -> ModelRunner:
    from services.engine.sim_runner import SimRunner

    return SimRunner.load(settings)


RUNNERS: Mapping[str, RunnerFactory] = MappingProxyType({"torch": _torch_runner, "sim": _sim_runner})


def make_runner(name: str, settings: RunnerSettings) -> ModelRunner:
    """Build the runner called `name`, ready for `warm_up`. ValueError names the known runners; a bad model raises the store's errors."""
    factory = RUNNERS.get(name)
    if factory is None:
        raise ValueError(f"unknown runner {name!r}; known: {', '.join(sorted(RUNNERS))}")
    return factory(settings)
