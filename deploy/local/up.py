"""Brings a local mesh up and proves that it answers; a second call only verifies."""

import asyncio
import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from deploy.envoy.descriptor import descriptor_set
from deploy.local import broker, certs, envoy, first_answer, local_keys, preflight, running
from deploy.local.broker import BrokerKind
from deploy.local.clients import Scheduler
from deploy.local.errors import LocalError, NoAnswerError
from deploy.local.home import Home, write_atomically
from deploy.local.local_keys import LocalKeys
from deploy.local.mesh import REPOSITORY, mesh_environ
from deploy.local.mesh_status import MeshStatus
from deploy.local.mesh_watch import MeshWatch, until_empty
from deploy.local.process import ProcessIdentity
from deploy.local.progress import Progress, Step
from deploy.local.settings import Runner, Settings
from deploy.local.supervise import exclusive
from inferway.edge.v1 import inference_pb2
from services.engine.cpu_runner.instruction_set import NoKernelsError, best_for, cpu_features
from services.engine.cpu_runner.kernel_build import library
from services.engine.model.card import load_card
from services.engine.model.importer import import_card
from services.kit import channel
from services.kit.errors import InferwayError
from services.kit.etcd import EtcdClient

MODEL = "smollm2-135m-instruct"
CARD = REPOSITORY / "models" / f"{MODEL}.yaml"
_FIXED_WHILE_RUNNING = ("INFERWAY_PORT_BASE", "INFERWAY_ENGINE_RUNNER")
_REPLICAS_TIMEOUT_S = 120.0
_ANSWER_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Ready:
    """A mesh that has just answered."""

    settings: Settings
    keys: LocalKeys
    broker_reason: str


async def up(settings: Settings, environ: Mapping[str, str], progress: Progress) -> Ready:
    """Start what is not running, wait until the demo model answers through the edge; raises LocalError and stops what it had started."""
    settings.home.create()
    with exclusive(settings.home.command_lock):
        decision = broker.decide(settings, environ)
        found = running.find(settings.home)
        if found:
            settings = _as_running(settings, found, environ)
            keys = await _bring_to_answer(settings, found.supervisor, progress)
        else:
            await _prepare(settings, decision.kind, environ, progress)
            supervisor = running.start(settings.home, mesh_environ(settings, environ))
            try:
                keys = await _bring_to_answer(settings, supervisor, progress)
            except BaseException as error:
                if not isinstance(error, NoAnswerError):
                    await asyncio.to_thread(running.stop, settings.home)
                raise
        return Ready(settings, keys, decision.reason)


def _as_running(settings: Settings, found: MeshStatus, environ: Mapping[str, str]) -> Settings:
    """The settings of the mesh that runs; raises LocalError when something else was asked for expressly."""
    actual = replace(settings, port_base=found.port_base, runner=Runner(found.runner))
    if any(environ.get(name) and settings.to_environ()[name] != actual.to_environ()[name] for name in _FIXED_WHILE_RUNNING):
        raise LocalError(
            f"A mesh of {settings.home.root} runs already, on port base {found.port_base} with the {found.runner} runner.",
            "Run `inferway down` first, or set another INFERWAY_HOME.",
        )
    return actual


async def _prepare(settings: Settings, kind: BrokerKind, environ: Mapping[str, str], progress: Progress) -> None:
    """Everything that must lie on disk before the first child starts, done side by side."""
    preflight.check(settings)
    preflight.check_model_card(CARD)
    await asyncio.to_thread(running.end_leftovers, settings.home)
    preflight.check_reserved(settings.ports.listeners(), preflight.ephemeral_ports())
    preflight.check_ports(settings.ports.listeners())
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.to_thread(_write_files, settings))
            group.create_task(_in_step(progress, f"Broker: {kind.value}", lambda _: broker.prepare(kind, settings, environ)))
            group.create_task(_in_step(progress, f"Model {MODEL}", lambda step: _import_model(settings.home, step)))
            if settings.runner in (Runner.AUTO, Runner.CPU):
                group.create_task(_in_step(progress, "CPU kernels", lambda step: _build_kernels(settings.home, environ, step)))
    except ExceptionGroup as group:
        local = group.subgroup(LocalError)
        raise (local or group).exceptions[0] from None


async def _in_step(progress: Progress, name: str, work: Callable[[Step], None]) -> None:
    with progress.step(name) as step:
        await asyncio.to_thread(work, step)


def _write_files(settings: Settings) -> None:
    certificates = certs.ensure(settings.home.certs, datetime.datetime.now(datetime.UTC))
    envoy.prepare(settings, certificates)
    write_atomically(settings.home.descriptors, descriptor_set(inference_pb2.DESCRIPTOR).SerializeToString())


def _import_model(home: Home, step: Step) -> None:
    try:
        import_card(load_card(CARD), home.root, lambda stage, done, total: step.say(f"{stage} {100 * done // total} %"))
    except InferwayError as error:
        raise LocalError(f"The model could not be imported: {error}.", "Run `make setup` and try again.") from error


def _build_kernels(home: Home, environ: Mapping[str, str], step: Step) -> None:
    """Replicas would build them as well, one after the other and unseen. Where they cannot be built, replicas run on torch and say so."""
    try:
        step.say("compiling for this CPU")
        ready_made = Path(folder) if (folder := environ.get("INFERWAY_ENGINE_KERNELS")) else None
        library(home.root, best_for(cpu_features()), ready_made, environ)
        step.say("")
    except NoKernelsError as error:
        step.say(f"none, torch serves and is slower: {error}; to mend: {error.remedy}")


async def _bring_to_answer(settings: Settings, supervisor: ProcessIdentity, progress: Progress) -> LocalKeys:
    """From a started supervisor to the first streamed token."""
    watch = MeshWatch(settings.home, supervisor)
    with progress.step("Services") as step:
        await watch.until_ready(step, "etcd")
        keys = await _make_keys(settings)
        await watch.until_ready(step, "scheduler")
        await _deploy(settings)
        await watch.until_ready(step)
    try:
        with progress.step("Replicas") as step:
            num_replicas = await _replicas_ready(settings, step)
        if num_replicas:
            with progress.step("First answer") as step:
                await _first_answer(settings, keys.demo, step)
    except LocalError as error:
        raise NoAnswerError(error.problem, f"{error.remedy} The services keep running; `inferway deploy {MODEL}` repairs it.") from error
    return keys


async def _make_keys(settings: Settings) -> LocalKeys:
    registry = EtcdClient([settings.etcd_endpoint])
    try:
        return await local_keys.ensure(registry, settings.home)
    except InferwayError as error:
        raise LocalError(f"The registry refused the demo key: {error}.", f"Read {settings.home.log('etcd')}.") from error
    finally:
        await registry.close()


async def _deploy(settings: Settings) -> None:
    """Ask for the demo model unless it is deployed: a number of replicas that somebody chose is kept."""
    async with channel.connect(settings.scheduler_address) as connection:
        scheduler = Scheduler(connection)
        try:
            if await scheduler.deployment(MODEL) is None:
                await scheduler.deploy(MODEL, settings.num_replicas)
        except InferwayError as error:
            raise LocalError(f"The scheduler refused the demo model: {error}.", f"Read {settings.home.log('scheduler')}.") from error


async def _replicas_ready(settings: Settings, step: Step) -> int:
    """Wait until as many replicas are ready as are desired, and return how many that is; somebody may have chosen none."""
    wanted = settings.num_replicas
    async with channel.connect(settings.scheduler_address) as connection:
        scheduler = Scheduler(connection)

        async def missing() -> str:
            nonlocal wanted
            try:
                found = await scheduler.deployment(MODEL)
            except InferwayError as error:
                return f"the scheduler does not answer: {error}"
            if found is None:
                return f"{MODEL} is not deployed"
            wanted = found.deployment.num_replicas
            return "" if found.num_ready >= wanted else f"{found.num_ready} of {wanted} ready. {found.problem}".strip(" .")

        await until_empty(missing, step, _REPLICAS_TIMEOUT_S, "The replicas did not get ready", settings.home.log("node"))
    return wanted


async def _first_answer(settings: Settings, key: str, step: Step) -> None:
    async def missing() -> str:
        return await asyncio.to_thread(first_answer.ask, settings.ports.edge_http, key, MODEL)

    await until_empty(missing, step, _ANSWER_TIMEOUT_S, "The mesh does not answer", settings.home.log("gateway"))
