"""Served models follow the deployments, with the template of exactly the version that is deployed."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from services.gateway.keys import Identity
from services.gateway.models import Models
from services.gateway.request import Message
from services.kit.errors import InferwayError, NotFound, Unavailable
from services.kit.model_store import TOKENIZER, ModelStore, ModelVersion
from tests.harness.eventually import eventually
from tests.harness.tiny_model import write_tiny_model

ANYBODY = Identity("acme", "key_1", frozenset(), False, b"")
LIMITED = Identity("acme", "key_2", frozenset({"other"}), False, b"")


class MemoryFleet:
    """A Fleet that the test changes."""

    def __init__(self) -> None:
        self.ready = False
        self._deployed: dict[str, tuple[str, int]] = {}
        self._ready_versions: dict[str, dict[str, int]] = {}
        self._changed = asyncio.Event()

    def deployed(self) -> Mapping[str, tuple[str, int]]:
        return dict(self._deployed)

    def ready_versions(self) -> Mapping[str, Mapping[str, int]]:
        return dict(self._ready_versions)

    async def changed(self) -> None:
        await self._changed.wait()
        self._changed.clear()

    def set(self, **deployed: tuple[str, int]) -> None:
        self.ready = True
        self._deployed = deployed
        self._changed.set()

    def run(self, **ready_versions: dict[str, int]) -> None:
        """Replicas become ready, or stop to be."""
        self._ready_versions = ready_versions
        self._changed.set()


@pytest.fixture
def fleet() -> MemoryFleet:
    return MemoryFleet()


@pytest.fixture
async def models(tmp_path: Path, fleet: MemoryFleet) -> AsyncIterator[Models]:
    with ThreadPoolExecutor(1) as threads:
        models = Models(ModelStore(tmp_path), fleet, threads)
        following = asyncio.create_task(models.run())
        yield models
        following.cancel()
        await asyncio.wait({following})


def refused(models: Models, name: str, identity: Identity = ANYBODY) -> InferwayError:
    with pytest.raises(InferwayError) as caught:
        models.resolve(name, identity)
    return caught.value


async def until(models: Models, *names: str) -> None:
    await eventually(lambda: [model.name for model in models.visible(ANYBODY)] == list(names))


async def test_resolve_before_the_first_load_is_unavailable(models: Models) -> None:
    assert isinstance(refused(models, "tiny"), Unavailable)
    with pytest.raises(Unavailable):
        models.visible(ANYBODY)


async def test_resolve_deployed_model_has_its_version_and_template(models: Models, fleet: MemoryFleet, tmp_path: Path) -> None:
    stored = write_tiny_model(tmp_path)
    fleet.set(tiny=("", 1))
    async with asyncio.timeout(10):
        await models.wait_ready()
    model = models.resolve("tiny", ANYBODY)
    assert (model.name, model.version, model.max_context_tokens) == ("tiny", stored.version, stored.max_context_tokens)
    assert len(model.template.encode([Message("user", "abc")], 64)) == 3
    assert model.created_unix_s == int(stored.path.stat().st_mtime)


async def test_resolve_unknown_and_forbidden_cannot_be_told_apart(models: Models, fleet: MemoryFleet, tmp_path: Path) -> None:
    write_tiny_model(tmp_path)
    fleet.set(tiny=("", 1))
    await models.wait_ready()
    forbidden, unknown = refused(models, "tiny", LIMITED), refused(models, "none", LIMITED)
    assert (forbidden.code, forbidden.reason) == (unknown.code, unknown.reason) == ("NOT_FOUND", "MODEL_NOT_FOUND")
    assert forbidden.message == unknown.message.replace("none", "tiny")
    assert models.visible(LIMITED) == []


@pytest.mark.parametrize("name", ["TINY", "tiny ", "", "../tiny", "tiny@1", "x" * 10_000])
async def test_resolve_name_that_is_nearly_right_is_not_found(models: Models, fleet: MemoryFleet, tmp_path: Path, name: str) -> None:
    write_tiny_model(tmp_path)
    fleet.set(tiny=("", 1))
    await models.wait_ready()
    error = refused(models, name)
    assert isinstance(error, NotFound)
    assert len(error.message) < 250


async def test_removed_deployment_is_no_longer_served(models: Models, fleet: MemoryFleet, tmp_path: Path) -> None:
    write_tiny_model(tmp_path)
    write_tiny_model(tmp_path, name="other")
    fleet.set(tiny=("", 1), other=("", 1))
    await models.wait_ready()
    await until(models, "other", "tiny")
    fleet.set(other=("", 1))
    await until(models, "other")
    assert isinstance(refused(models, "tiny"), NotFound)


async def test_newest_version_is_looked_up_when_the_deployment_changes_only(models: Models, fleet: MemoryFleet, tmp_path: Path) -> None:
    old = write_tiny_model(tmp_path)
    fleet.set(tiny=("", 1))
    await models.wait_ready()
    new = write_tiny_model(tmp_path, max_context_tokens=1024)
    assert models.resolve("tiny", ANYBODY).version == old.version
    fleet.set(tiny=("", 2))
    await eventually(lambda: models.resolve("tiny", ANYBODY).version == new.version)
    fleet.set(tiny=(old.version, 3))
    await eventually(lambda: models.resolve("tiny", ANYBODY).version == old.version)


@pytest.mark.parametrize("fault", ["absent", "corrupt"])
async def test_model_that_cannot_be_loaded_is_unavailable_and_the_others_are_served(
    models: Models, fleet: MemoryFleet, tmp_path: Path, fault: str
) -> None:
    write_tiny_model(tmp_path, name="good")
    if fault == "corrupt":
        file = write_tiny_model(tmp_path).path / TOKENIZER
        content = file.read_bytes()
        file.write_bytes(json.dumps({}).encode().ljust(len(content)))
    fleet.set(tiny=("", 1), good=("", 1))
    await models.wait_ready()
    assert isinstance(refused(models, "tiny"), Unavailable)
    assert models.resolve("good", ANYBODY).name == "good"


async def test_version_that_replicas_run_is_served_until_one_is_ready_with_the_deployed_one(
    models: Models, fleet: MemoryFleet, tmp_path: Path
) -> None:
    def version() -> str:
        return models.resolve("tiny", ANYBODY).version

    old = write_tiny_model(tmp_path).version
    new = write_tiny_model(tmp_path, max_context_tokens=1024).version
    fleet.set(tiny=(new, 1))
    await models.wait_ready()
    assert version() == new
    fleet.run(tiny={old: 2})
    await eventually(lambda: version() == old)
    fleet.run(tiny={old: 2, new: 1})
    await eventually(lambda: version() == new)
    fleet.run(tiny={})
    assert version() == new


async def test_import_while_replicas_run_changes_nothing_for_them_after_a_restart(
    models: Models, fleet: MemoryFleet, tmp_path: Path
) -> None:
    old = write_tiny_model(tmp_path).version
    write_tiny_model(tmp_path, max_context_tokens=1024)
    fleet.set(tiny=("", 1))
    fleet.run(tiny={old: 1})
    await models.wait_ready()
    await eventually(lambda: models.resolve("tiny", ANYBODY).version == old)


async def test_version_of_a_replica_that_is_not_in_the_store_is_passed_over(models: Models, fleet: MemoryFleet, tmp_path: Path) -> None:
    stored = write_tiny_model(tmp_path).version
    fleet.run(tiny={"0" * 12: 5})
    fleet.set(tiny=("", 1))
    await models.wait_ready()
    assert models.resolve("tiny", ANYBODY).version == stored


@pytest.mark.parametrize("fault", [PermissionError(13, "no"), UnicodeDecodeError("utf-8", b"x", 0, 1, "no")])
async def test_model_whose_files_cannot_be_used_harms_no_other_model(
    models: Models, fleet: MemoryFleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    write_tiny_model(tmp_path, "good")
    usual = ModelStore.get

    def get(store: ModelStore, name: str, version: str = "") -> ModelVersion:
        if name == "bad":
            raise fault
        return usual(store, name, version)

    monkeypatch.setattr(ModelStore, "get", get)
    fleet.set(bad=("", 1), good=("", 1))
    async with asyncio.timeout(10):
        await models.wait_ready()
    assert [model.name for model in models.visible(ANYBODY)] == ["good"]
