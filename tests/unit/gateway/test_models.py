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
from services.kit.model_store import TOKENIZER, ModelStore
from tests.harness.eventually import eventually
from tests.harness.tiny_model import write_tiny_model

ANYBODY = Identity("acme", "key_1", frozenset(), False, b"")
LIMITED = Identity("acme", "key_2", frozenset({"other"}), False, b"")


class MemoryDeployments:
    """Deployments that the test changes."""

    def __init__(self) -> None:
        self.ready = False
        self._versions: dict[str, tuple[str, int]] = {}
        self._changed = asyncio.Event()

    def versions(self) -> Mapping[str, tuple[str, int]]:
        return dict(self._versions)

    async def changed(self) -> None:
        await self._changed.wait()
        self._changed.clear()

    def set(self, **versions: tuple[str, int]) -> None:
        self.ready = True
        self._versions = versions
        self._changed.set()


@pytest.fixture
def deployments() -> MemoryDeployments:
    return MemoryDeployments()


@pytest.fixture
async def models(tmp_path: Path, deployments: MemoryDeployments) -> AsyncIterator[Models]:
    with ThreadPoolExecutor(1) as threads:
        models = Models(ModelStore(tmp_path), deployments, threads)
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


async def test_resolve_deployed_model_has_its_version_and_template(models: Models, deployments: MemoryDeployments, tmp_path: Path) -> None:
    stored = write_tiny_model(tmp_path)
    deployments.set(tiny=("", 1))
    async with asyncio.timeout(10):
        await models.wait_ready()
    model = models.resolve("tiny", ANYBODY)
    assert (model.name, model.version, model.max_context_tokens) == ("tiny", stored.version, stored.max_context_tokens)
    assert len(model.template.encode([Message("user", "abc")])) == 3
    assert model.created_unix_s == int(stored.path.stat().st_mtime)


async def test_resolve_unknown_and_forbidden_cannot_be_told_apart(models: Models, deployments: MemoryDeployments, tmp_path: Path) -> None:
    write_tiny_model(tmp_path)
    deployments.set(tiny=("", 1))
    await models.wait_ready()
    forbidden, unknown = refused(models, "tiny", LIMITED), refused(models, "none", LIMITED)
    assert (forbidden.code, forbidden.reason) == (unknown.code, unknown.reason) == ("NOT_FOUND", "MODEL_NOT_FOUND")
    assert forbidden.message == unknown.message.replace("none", "tiny")
    assert models.visible(LIMITED) == []


@pytest.mark.parametrize("name", ["TINY", "tiny ", "", "../tiny", "tiny@1", "x" * 10_000])
async def test_resolve_name_that_is_nearly_right_is_not_found(
    models: Models, deployments: MemoryDeployments, tmp_path: Path, name: str
) -> None:
    write_tiny_model(tmp_path)
    deployments.set(tiny=("", 1))
    await models.wait_ready()
    error = refused(models, name)
    assert isinstance(error, NotFound)
    assert len(error.message) < 250


async def test_removed_deployment_is_no_longer_served(models: Models, deployments: MemoryDeployments, tmp_path: Path) -> None:
    write_tiny_model(tmp_path)
    write_tiny_model(tmp_path, name="other")
    deployments.set(tiny=("", 1), other=("", 1))
    await models.wait_ready()
    await until(models, "other", "tiny")
    deployments.set(other=("", 1))
    await until(models, "other")
    assert isinstance(refused(models, "tiny"), NotFound)


async def test_newest_version_is_looked_up_when_the_deployment_changes_only(
    models: Models, deployments: MemoryDeployments, tmp_path: Path
) -> None:
    old = write_tiny_model(tmp_path)
    deployments.set(tiny=("", 1))
    await models.wait_ready()
    new = write_tiny_model(tmp_path, max_context_tokens=1024)
    assert models.resolve("tiny", ANYBODY).version == old.version
    deployments.set(tiny=("", 2))
    await eventually(lambda: models.resolve("tiny", ANYBODY).version == new.version)
    deployments.set(tiny=(old.version, 3))
    await eventually(lambda: models.resolve("tiny", ANYBODY).version == old.version)


@pytest.mark.parametrize("fault", ["absent", "corrupt"])
async def test_model_that_cannot_be_loaded_is_unavailable_and_the_others_are_served(
    models: Models, deployments: MemoryDeployments, tmp_path: Path, fault: str
) -> None:
    write_tiny_model(tmp_path, name="good")
    if fault == "corrupt":
        file = write_tiny_model(tmp_path).path / TOKENIZER
        content = file.read_bytes()
        file.write_bytes(json.dumps({}).encode().ljust(len(content)))
    deployments.set(tiny=("", 1), good=("", 1))
    await models.wait_ready()
    assert isinstance(refused(models, "tiny"), Unavailable)
    assert models.resolve("good", ANYBODY).name == "good"
