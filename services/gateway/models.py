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
    created_unix_s: int
    template: ChatTemplate


class Deployments(Protocol):
    """The live copy of what shall run."""

    @property
    def ready(self) -> bool:
        """True once everything was read."""

    def versions(self) -> Mapping[str, tuple[str, int]]:
        """Version ("" means the newest in the store) and generation by model."""

    async def changed(self) -> None:
        """Waits until it is ready, then for the next change since the last return. One waiter only."""


class Models:
    """The served models. Files are read and tokenizers built in `executor`, away from the event loop."""

    def __init__(self, store: ModelStore, deployments: Deployments, executor: Executor) -> None:
        self._store = store
        self._deployments = deployments
        self._executor = executor
        self._served: dict[str, ServedModel] = {}
        self._loaded: dict[str, tuple[str, int]] = {}
        self._settled = asyncio.Event()

    async def wait_ready(self) -> None:
        """Waits until deployments were read and everything that can be loaded is."""
        await self._settled.wait()

    def resolve(self, name: str, identity: Identity) -> ServedModel:
        """The model for this key.

        MODEL_NOT_FOUND when there is none or the key may not use it, which is told apart to nobody; 503 while it cannot be known or loaded.
        """
        if identity.can_use(name):
            if name in self._served:
                return self._served[name]
            if not self._settled.is_set() or name in self._deployments.versions():
                message = "the models are being loaded; try again in a moment"
                raise Unavailable(message, retry_after_s=1.0)
        message = f"the model {name[:100]!a} does not exist or this key may not use it"
        raise NotFound(message, reason="MODEL_NOT_FOUND", metadata={"param": "model"})

    def visible(self, identity: Identity) -> list[ServedModel]:
        """All models that the key may use, by name. 503 before the first load."""
        if not self._settled.is_set():
            raise Unavailable("the models are being loaded; try again in a moment", retry_after_s=1.0)
        return [model for name, model in sorted(self._served.items()) if identity.can_use(name)]

    async def run(self) -> None:
        """Follows the deployments until cancelled. What cannot be loaded is logged and tried again every few seconds."""
        while True:
            complete = await self._follow() if self._deployments.ready else True
            try:
                async with asyncio.timeout(None if complete else _RETRY_S):
                    await self._deployments.changed()
            except TimeoutError:
                continue

    async def _follow(self) -> bool:
        """Loads and drops models until they are what deployments ask for; False when something could not be loaded."""
        wanted = dict(self._deployments.versions())
        for name in set(self._served) - set(wanted):
            del self._served[name], self._loaded[name]
        complete = True
        for name, version in wanted.items():
            # The newest version is looked up when the deployment changes, not when a file appears: replicas do the same.
            if self._loaded.get(name) != version:
                complete &= await self._load(name, version)
        self._settled.set()
        return complete

    async def _load(self, name: str, version: tuple[str, int]) -> bool:
        loop = asyncio.get_running_loop()
        try:
            self._served[name] = await loop.run_in_executor(self._executor, load_model, self._store, name, version[0])
        except (NotFound, DataLoss) as error:
            log.error("a deployed model cannot be served", extra={"fields": {"model": name, "problem": str(error)}})
            return False
        self._loaded[name] = version
        log.info("model is served", extra={"fields": {"model": name, "version": self._served[name].version}})
        return True


def load_model(store: ModelStore, name: str, version: str) -> ServedModel:
    """Reads a version's template and tokenizer; NotFound or DataLoss when they cannot be used. Blocks."""
    stored = store.get(name, version)
    template = ChatTemplate(
        stored.read(CHAT_TEMPLATE).decode(),
        stored.read(TOKENIZER).decode(),
        bos_token_id=stored.bos_token_id,
        eos_token_ids=stored.eos_token_ids,
    )
    created = int(stored.path.stat().st_mtime)
    return ServedModel(stored.name, stored.version, stored.max_context_tokens, created, template)
