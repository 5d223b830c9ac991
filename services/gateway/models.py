"""The models that are served: what deployments ask for, with template and tokenizer of exactly that version."""

import asyncio
import logging
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Protocol

from services.gateway.chat_template import ChatTemplate
from services.gateway.keys import Identity
from services.kit.errors import DataLoss, NotFound, Unavailable
from services.kit.model_store import CHAT_TEMPLATE, TOKENIZER, ModelStore

log = logging.getLogger(__name__)

_RETRY_S = 5.0


@dataclass(frozen=True, slots=True)
class ServedModel:
    """One model version; `created_unix_s` is the time of its import."""

    name: str
    version: str
    max_context_tokens: int
    vocab_size: int
    created_unix_s: int
    template: ChatTemplate


class Fleet(Protocol):
    """The live copy of what shall run and what does run."""

    @property
    def ready(self) -> bool:
        """True once everything was read."""

    def deployed(self) -> Mapping[str, tuple[str, int]]:
        """Version ("" means the newest in the store) and generation by model."""

    def ready_versions(self) -> Mapping[str, Mapping[str, int]]:
        """How many replicas are ready, by model and version."""

    async def changed(self) -> None:
        """Waits until it is ready, then for the next change since the last return. One waiter only."""


class Models:
    """The served models. Files are read and tokenizers built in `executor`, away from the event loop.

    A model is served in the version that its deployment asks for, as soon as a replica is ready with it; until then in the version that
    most ready replicas have, so that neither an import nor a change of version leaves running replicas without work.
    """

    def __init__(self, store: ModelStore, fleet: Fleet, executor: Executor) -> None:
        self._store = store
        self._fleet = fleet
        self._executor = executor
        self._deployed: dict[str, tuple[str, int]] = {}
        self._targets: dict[str, str] = {}
        self._loaded: dict[tuple[str, str], ServedModel] = {}
        self._served: dict[str, ServedModel] = {}
        self._settled = asyncio.Event()

    async def wait_ready(self) -> None:
        """Waits until the fleet was read and everything that can be loaded is."""
        await self._settled.wait()

    def resolve(self, name: str, identity: Identity) -> ServedModel:
        """The model for this key.

        MODEL_NOT_FOUND when there is none or the key may not use it, which is told apart to nobody; 503 while it cannot be known or loaded.
        """
        if identity.can_use(name):
            if name in self._served:
                return self._served[name]
            if not self._settled.is_set() or name in self._deployed:
                raise _loading()
        message = f"the model {name[:100]!a} does not exist or this key may not use it"
        raise NotFound(message, reason="MODEL_NOT_FOUND", metadata={"param": "model"})

    def visible(self, identity: Identity) -> list[ServedModel]:
        """All models that the key may use, by name. 503 before the first load."""
        if not self._settled.is_set():
            raise _loading()
        return [model for name, model in sorted(self._served.items()) if identity.can_use(name)]

    async def run(self) -> None:
        """Follows the fleet until cancelled. What cannot be loaded is logged and tried again every few seconds."""
        while True:
            complete = await self._follow() if self._fleet.ready else True
            try:
                async with asyncio.timeout(None if complete else _RETRY_S):
                    await self._fleet.changed()
            except TimeoutError:
                continue

    async def _follow(self) -> bool:
        """Makes the served models what deployments and replicas ask for; False when something could not be loaded."""
        deployed, ready = dict(self._fleet.deployed()), self._fleet.ready_versions()
        complete = True
        for name, wanted in deployed.items():
            # The newest version is looked up when the deployment changes, not when a file appears: replicas do the same.
            if self._deployed.get(name) != wanted or name not in self._targets:
                target = await self._load(name, wanted[0])
                if target is not None:
                    self._targets[name] = target.version
                complete &= target is not None
            for version in ready.get(name, {}):
                complete &= await self._load(name, version) is not None
        self._deployed = deployed
        self._choose(ready)
        self._settled.set()
        return complete

    def _choose(self, ready: Mapping[str, Mapping[str, int]]) -> None:
        """Picks the version of every model and drops what nobody needs."""
        self._targets = {name: version for name, version in self._targets.items() if name in self._deployed}
        served: dict[str, ServedModel] = {}
        for name in self._deployed:
            counts = ready.get(name, {})
            running = sorted(
                (version for version in counts if (name, version) in self._loaded), key=lambda version: (-counts[version], version)
            )
            target = self._targets.get(name)
            version = target if target in running or not running else running[0]
            if version is not None:
                served[name] = self._loaded[name, version]
        needed = {(name, version) for name in self._deployed for version in (*ready.get(name, {}), self._targets.get(name, ""))}
        self._loaded = {key: model for key, model in self._loaded.items() if key in needed}
        for name, model in served.items():
            if self._served.get(name) is not model:
                log.info("model is served", extra={"fields": {"model": name, "version": model.version}})
        self._served = served

    async def _load(self, name: str, version: str) -> ServedModel | None:
        """The loaded version, from memory when it is there; None when it cannot be loaded. An empty version means the newest."""
        if version and (name, version) in self._loaded:
            return self._loaded[name, version]
        loop = asyncio.get_running_loop()
        try:
            model = await loop.run_in_executor(self._executor, load_model, self._store, name, version)
        except (NotFound, DataLoss) as error:
            log.error("a deployed model cannot be served", extra={"fields": {"model": name, "version": version, "problem": error.message}})
            return None
        self._loaded[name, model.version] = model
        return model


def _loading() -> Unavailable:
    return Unavailable("the model is being loaded; try again in a moment", retry_after_s=1.0)


def load_model(store: ModelStore, name: str, version: str) -> ServedModel:
    """Reads a version's template and tokenizer; NotFound or DataLoss when they cannot be used. Blocks."""
    try:
        stored = store.get(name, version)
        template, tokenizer = stored.read(CHAT_TEMPLATE).decode(), stored.read(TOKENIZER).decode()
        created = int(stored.path.stat().st_mtime)
    except (OSError, UnicodeDecodeError) as error:  # A store that another process changes, or may read and we may not.
        raise DataLoss(f"the files of model {name} cannot be read: {type(error).__name__}") from error
    usable = ChatTemplate(template, tokenizer, bos_token_id=stored.bos_token_id, eos_token_ids=stored.eos_token_ids)
    return ServedModel(stored.name, stored.version, stored.max_context_tokens, stored.vocab_size, created, usable)
