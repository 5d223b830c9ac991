"""What operators may ask for: every change of desired state is checked here and written under guard, so that any scheduler can serve it."""

import re
from collections.abc import Mapping
from dataclasses import replace

from services.kit.clock import Clock
from services.kit.errors import FieldError, NotFound, Unavailable
from services.scheduler.fleet import Assignment, Deployment, Fleet
from services.scheduler.store import FleetStore

MAX_REPLICAS = 1000
MAX_DRAIN_TIMEOUT_S = 24 * 3600
MAX_SETTINGS = 64
# What identifies a replica is decided by its assignment and its node, not by a deployment.
RESERVED_SETTINGS = frozenset(
    {
        *("replica_id", "model", "model_version", "node_id", "home", "kernels"),
        *("host", "port", "advertised_host", "metrics_port", "etcd_endpoints", "kafka_bootstrap", "drain_timeout_s"),
    }
)

_MODEL = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
_VERSION = re.compile(r"[0-9a-f]{12}|")
_SETTING = re.compile(r"[a-z][a-z0-9_]{0,63}")
_VALUE = re.compile(r"[\x20-\x7e]{1,256}")
_ATTEMPTS = 5


class DesiredState:
    """Deployments and drains. Methods raise InferwayError; a call that ended in doubt can simply be repeated."""

    def __init__(self, store: FleetStore, clock: Clock, *, default_drain_timeout_s: int) -> None:
        self._store = store
        self._clock = clock
        self._default_drain_timeout_s = default_drain_timeout_s

    async def deploy(self, wanted: Deployment) -> Deployment:
        """Creates or changes a deployment; returns what is stored. The same wish again changes nothing, not even the generation."""
        wanted = replace(wanted, drain_timeout_s=wanted.drain_timeout_s or self._default_drain_timeout_s)
        _check(wanted)
        for _ in range(_ATTEMPTS):
            stored = await self._store.read_deployment(wanted.model)
            if (done := await self._write(wanted, stored)) is not None:
                return done
        raise _busy(wanted.model)

    async def scale(self, model: str, num_replicas: int) -> Deployment:
        """Sets the number of replicas. NotFound when the model is not deployed."""
        _check_num_replicas(num_replicas, "num_replicas")
        for _ in range(_ATTEMPTS):
            stored = await self._deployed(model)
            if (done := await self._write(replace(stored, num_replicas=num_replicas), stored)) is not None:
                return done
        raise _busy(model)

    async def undeploy(self, model: str) -> None:
        """Removes the deployment; its replicas drain. NotFound when the model is not deployed."""
        for _ in range(_ATTEMPTS):
            if await self._store.delete_deployment(await self._deployed(model)):
                return
        raise _busy(model)

    async def drain_replica(self, replica_id: str, timeout_s: int | None) -> list[str]:
        """Drains one replica; its deployment gets another. A drain that runs already is only ever shortened."""
        _check_drain_timeout(timeout_s)
        for _ in range(_ATTEMPTS):
            fleet = await self._store.read()
            found = [each for each in fleet.assignments if each.replica_id == replica_id]
            if not found:
                raise NotFound(f"there is no replica {replica_id!r}", metadata={"replica": replica_id})
            if await self._start_drain(found[0], fleet.drain_timeout_s(found[0]) if timeout_s is None else timeout_s):
                return [replica_id]
        raise _busy(replica_id)

    async def drain_node(self, node_id: str, timeout_s: int | None) -> list[str]:
        """Drains all replicas of a node and gives it no new ones; returns the replicas that drain now."""
        _check_drain_timeout(timeout_s)
        if not _knows_node(await self._store.read(), node_id):
            raise NotFound(f"there is no node {node_id!r}", metadata={"node": node_id})
        await self._store.cordon(node_id, self._clock.unix_ms())
        for _ in range(_ATTEMPTS):
            fleet = await self._store.read()
            mine = [each for each in fleet.assignments if each.node_id == node_id]
            limits = [fleet.drain_timeout_s(each) if timeout_s is None else timeout_s for each in mine]
            if all([await self._start_drain(each, limit_s) for each, limit_s in zip(mine, limits, strict=True)]):
                return sorted(each.replica_id for each in mine)
        raise _busy(node_id)

    async def uncordon(self, node_id: str) -> None:
        """Lets a drained node get replicas again. NotFound for a node that nobody knows."""
        if not _knows_node(await self._store.read(), node_id):
            raise NotFound(f"there is no node {node_id!r}", metadata={"node": node_id})
        await self._store.uncordon(node_id)

    async def _write(self, wanted: Deployment, stored: Deployment | None) -> Deployment | None:
        """What is stored afterwards; None when somebody else was faster."""
        if stored is not None and _same_wish(wanted, stored):
            return stored
        revision, generation = (stored.revision, stored.generation) if stored is not None else (0, 0)
        changed = replace(wanted, generation=generation + 1, revision=revision)
        return changed if await self._store.write_deployment(changed) else None

    async def _deployed(self, model: str) -> Deployment:
        stored = await self._store.read_deployment(model) if is_model_name(model) else None
        if stored is None:
            raise NotFound(f"model {model!r} is not deployed", reason="MODEL_NOT_FOUND", metadata={"model": model})
        return stored

    async def _start_drain(self, assignment: Assignment, timeout_s: int) -> bool:
        deadline = self._clock.unix_ms() + 1000 * timeout_s
        if assignment.draining and assignment.drain_deadline_unix_ms <= deadline:
            return True
        return await self._store.write_assignment(replace(assignment, draining=True, drain_deadline_unix_ms=deadline))


def is_model_name(name: str) -> bool:
    """True when a deployment may be called so."""
    return _MODEL.fullmatch(name) is not None


def _same_wish(wanted: Deployment, stored: Deployment) -> bool:
    return replace(wanted, generation=stored.generation) == stored


def _knows_node(fleet: Fleet, node_id: str) -> bool:
    return node_id in fleet.nodes or node_id in fleet.absent or node_id in fleet.cordoned


def _check(deployment: Deployment) -> None:
    if not is_model_name(deployment.model):
        raise FieldError("deployment.model", "must be 1-100 lower-case letters, digits, '.', '_' or '-', beginning with a letter or digit")
    if not _VERSION.fullmatch(deployment.model_version):
        raise FieldError("deployment.model_version", "must be 12 hexadecimal digits as the model store names it, or empty for the newest")
    _check_num_replicas(deployment.num_replicas, "deployment.num_replicas")
    if not 1 <= deployment.drain_timeout_s <= MAX_DRAIN_TIMEOUT_S:
        raise FieldError("deployment.drain_timeout_s", f"must be at most {MAX_DRAIN_TIMEOUT_S} seconds")
    _check_settings(deployment.engine_settings)


def _check_settings(settings: Mapping[str, str]) -> None:
    if len(settings) > MAX_SETTINGS:
        raise FieldError("deployment.engine_settings", f"must have at most {MAX_SETTINGS} entries")
    for name, value in sorted(settings.items()):
        param = f"deployment.engine_settings[{name[:64]}]"
        if not _SETTING.fullmatch(name):
            raise FieldError(param, "a name is 1-64 lower-case letters, digits or '_', beginning with a letter")
        if name in RESERVED_SETTINGS:
            raise FieldError(param, "is decided by the assignment or the node and cannot be set here")
        if not _VALUE.fullmatch(value):
            raise FieldError(param, "a value is 1-256 printable ASCII characters")


def _check_num_replicas(num_replicas: int, param: str) -> None:
    if not 0 <= num_replicas <= MAX_REPLICAS:
        raise FieldError(param, f"must be at most {MAX_REPLICAS}")


def _check_drain_timeout(timeout_s: int | None) -> None:
    if timeout_s is not None and timeout_s > MAX_DRAIN_TIMEOUT_S:
        raise FieldError("timeout_s", f"must be at most {MAX_DRAIN_TIMEOUT_S} seconds")


def _busy(name: str) -> Unavailable:
    return Unavailable(f"{name} is being changed by others at the same time; try again", retry_after_s=1)
