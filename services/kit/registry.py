"""A live copy of one prefix of the registry, which goes on serving the last good view while the registry is away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Generic, TypeVar

from google.protobuf import json_format
from google.protobuf.message import Message
from prometheus_client import CollectorRegistry, Counter

from services.kit.etcd import Compacted, EtcdClient, EtcdError, Event, KeyValue, Watch

M = TypeVar("M", bound=Message)

_log = logging.getLogger(__name__)
_MIN_PAUSE_S = 0.1
_MAX_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class Change(Generic[M]):
    """One key that changed: ``before`` is None when it is new, ``after`` is None when it is gone."""

    key: str
    before: M | None
    after: M | None


class RegistryMetrics:
    """Counters of all views of a process, by prefix."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.bad_values = Counter(
            "inferway_registry_bad_values", "Registry values that could not be parsed and were skipped.", ["prefix"], registry=registry
        )
        self.full_reads = Counter("inferway_registry_full_reads", "Full reads of a registry prefix.", ["prefix"], registry=registry)


class PrefixView(Generic[M]):
    """All messages below ``prefix``, by full key, kept up to date by a watch and checked by a full read every ``reread_s`` seconds.

    Values are protobuf JSON of ``message_type``; unknown fields are ignored. A value that does not parse is logged (its key, never its
    text), counted and skipped: the key keeps its earlier message, or stays out of the view if it had none.
    """

    def __init__(
        self,
        client: EtcdClient,
        prefix: str,
        message_type: type[M],
        *,
        reread_s: float = 300.0,
        metrics: RegistryMetrics | None = None,
    ) -> None:
        self._client = client
        self._prefix = prefix
        self._message_type = message_type
        self._reread_s = reread_s
        self._metrics = metrics or RegistryMetrics(CollectorRegistry())
        self._messages: Mapping[str, M] = MappingProxyType({})
        self._revisions: dict[str, int] = {}
        self._subscribers: list[Callable[[Change[M]], None]] = []
        self._changed = asyncio.Event()
        self._ready = False
        self._stale_since: float | None = asyncio.get_running_loop().time()

    def snapshot(self) -> Mapping[str, M]:
        """The last good view, immutable; the messages are shared, so do not change them."""
        return self._messages

    def revision_of(self, key: str) -> int:
        """mod_revision of the key in this view, 0 when absent: the guard of a write that is based on this view."""
        return self._revisions.get(key, 0)

    @property
    def ready(self) -> bool:
        """True once the prefix has been read in full."""
        return self._ready

    @property
    def stale_since(self) -> float | None:
        """Event-loop time since when the view may be out of date; None while the watch is live."""
        return self._stale_since

    @property
    def healthy(self) -> bool:
        """True while the view is complete and its watch is live."""
        return self._ready and self._stale_since is None

    def subscribe(self, callback: Callable[[Change[M]], None]) -> Callable[[], None]:
        """Calls ``callback`` in the event loop for every change from now on, after the snapshot shows it; returns the way to stop that."""
        self._subscribers.append(callback)
        return lambda: self._subscribers.remove(callback)

    async def wait_until(self, predicate: Callable[[Mapping[str, M]], bool]) -> Mapping[str, M]:
        """Waits until the predicate holds for a complete view, and returns that view. Bound it with asyncio.timeout."""
        while not (self._ready and predicate(self._messages)):
            await self._changed.wait()
        return self._messages

    async def wait_ready(self) -> Mapping[str, M]:
        """Waits for the first complete view. Bound it with asyncio.timeout."""
        return await self.wait_until(lambda _: True)

    async def run(self) -> None:
        """Keeps the view up to date until cancelled; no state of etcd ends it, and while etcd is away the last good view stays."""
        pause_s = _MIN_PAUSE_S
        while True:
            try:
                revision = await self._read_all()
                pause_s = _MIN_PAUSE_S
                await self._follow(revision + 1)
            except Compacted as error:
                _log.warning(
                    "registry history is gone, reading all again", extra={"fields": {"prefix": self._prefix, "error": error.details}}
                )
            except EtcdError as error:
                self._mark(live=False)
                _log.warning(
                    "registry is away, the last view is served", extra={"fields": {"prefix": self._prefix, "error": error.details}}
                )
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _MAX_PAUSE_S)

    async def _read_all(self) -> int:
        listing = await self._client.get_prefix(self._prefix)
        self._metrics.full_reads.labels(self._prefix).inc()
        present = {kv.key for kv in listing.kvs}
        gone = [key for key in self._revisions if key not in present]
        self._apply([kv for kv in listing.kvs if kv.mod_revision != self._revisions.get(kv.key)], gone)
        return listing.revision

    async def _follow(self, start_revision: int) -> None:
        """Applies events until it is time for a full read."""
        async with self._client.watch(self._prefix, prefix=True, start_revision=start_revision) as watch:
            try:
                async with asyncio.timeout(self._reread_s):
                    await self._follow_watch(watch)
            except TimeoutError:
                return

    async def _follow_watch(self, watch: Watch) -> None:
        while True:
            self._apply_events(await watch.poll())
            self._mark(live=watch.live)

    def _apply_events(self, events: tuple[Event, ...]) -> None:
        for event in events:  # One by one: two events of one batch may concern the same key.
            self._apply([] if event.deleted else [event.kv], [event.kv.key] if event.deleted else [])

    def _apply(self, written: list[KeyValue], deleted: list[str]) -> None:
        """Puts the changes into a new snapshot, then tells the subscribers."""
        messages = dict(self._messages)
        changes: list[Change[M]] = []
        for key in deleted:
            self._revisions.pop(key, None)
            if (before := messages.pop(key, None)) is not None:
                changes.append(Change(key, before, None))
        for kv in written:
            self._revisions[kv.key] = kv.mod_revision
            if (after := self._parse(kv)) is not None:
                changes.append(Change(kv.key, messages.get(kv.key), after))
                messages[kv.key] = after
        if changes or not self._ready:
            self._publish(messages, changes)

    def _publish(self, messages: dict[str, M], changes: list[Change[M]]) -> None:
        self._messages = MappingProxyType(messages)
        self._ready = True
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        for change in changes:
            for callback in list(self._subscribers):
                callback(change)

    def _parse(self, kv: KeyValue) -> M | None:
        try:
            return json_format.Parse(kv.value, self._message_type(), ignore_unknown_fields=True)
        except (json_format.ParseError, UnicodeDecodeError):
            self._metrics.bad_values.labels(self._prefix).inc()
            _log.error("registry value does not parse and is skipped", extra={"fields": {"key": kv.key, "mod_revision": kv.mod_revision}})
            return None

    def _mark(self, *, live: bool) -> None:
        if live:
            self._stale_since = None
        elif self._stale_since is None:
            self._stale_since = asyncio.get_running_loop().time()
