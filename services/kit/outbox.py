"""The outbox: records become durable here before anyone is told about them, and leave only when the ledger has them."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

from services.kit.errors import InferwayError
from services.kit.outbox_file import Draft, MakeValue, OutboxFile, OutboxFull, OutboxLocked, OutboxRow, OutboxUnavailable

__all__ = ["Outbox", "OutboxFull", "OutboxLocked", "OutboxRow", "OutboxUnavailable"]

T = TypeVar("T")

_MAX_WAITING = 10_000
_ROOM_FRACTION = 0.9


@dataclass(frozen=True, slots=True)
class _Job:
    """Work for the writer thread: a draft to store, or a call to make between commits."""

    future: asyncio.Future[Any]
    draft: Draft | None = None
    call: Callable[[], Any] | None = None


class Outbox:
    """An OutboxFile behind one writer thread. Appends that arrive while a commit runs share the next one (group commit).

    Made in the running event loop; methods are called from it only.
    """

    def __init__(self, file: OutboxFile) -> None:
        self._file = file
        self._loop = asyncio.get_running_loop()
        self._jobs: deque[_Job] = deque()
        self._wake = threading.Condition()
        self._closing = False
        self._is_refused = False
        self._trial: asyncio.Future[None] | None = None
        self._changed = asyncio.Event()
        self._thread = threading.Thread(target=self._write_until_closed, name="outbox-writer", daemon=True)
        self._thread.start()

    @classmethod
    def open(cls, path: Path, *, max_bytes: int) -> Outbox:
        """Opens or creates the outbox at ``path``. Raises OutboxLocked when another process owns it."""
        return cls(OutboxFile(path, max_bytes))

    @property
    def producer_id(self) -> str:
        """Identity of the numbering: stored in the file, the same for as long as the file lives."""
        return self._file.producer_id

    @property
    def last_sequence(self) -> int:
        """Number of the newest durable record, 0 when there never was one."""
        return self._file.last_sequence

    @property
    def num_rows(self) -> int:
        """Records that the ledger does not have yet, as far as this outbox knows."""
        return self._file.num_rows

    @property
    def num_bytes(self) -> int:
        """Size of those records."""
        return self._file.num_bytes

    @property
    def oldest_unix_ms(self) -> int:
        """When the oldest of those records was stored, 0 when there is none."""
        return self._file.oldest_unix_ms

    def require_room(self) -> None:
        """Ask before work is accepted, so that accepted work finds room for its record. Raises OutboxFull above 90 % of the bound, and
        OutboxUnavailable after an append that the disk refused, until it takes something again; each question makes it try.
        """
        if self._is_refused:
            self._try_write()
            raise OutboxUnavailable("usage records cannot be stored at present", retry_after_s=5.0)
        if self._file.num_bytes > self._file.max_bytes * _ROOM_FRACTION:
            raise OutboxFull("the outbox of usage records is nearly full", retry_after_s=5.0)

    async def append(self, topic: str, key: bytes, make_value: MakeValue) -> int:
        """Stores one record and returns its number once it is durable.

        ``make_value(producer_id, sequence)`` runs in the writer thread: it must be quick and without effects. When the caller is cancelled
        the record may be stored all the same. Raises OutboxFull, OutboxUnavailable, or what make_value raised.
        """
        if len(self._jobs) >= _MAX_WAITING:
            raise OutboxFull("too many records wait for the disk", retry_after_s=1.0)
        future: asyncio.Future[int] = self._loop.create_future()
        self._enqueue(_Job(future, draft=Draft(topic, key, make_value)))
        return await future

    async def read(self, after: int, max_rows: int) -> list[OutboxRow]:
        """Up to ``max_rows`` durable records with numbers above ``after``, in order."""
        return await self._call(lambda: self._file.read(after, max_rows))

    async def trim(self, through: int) -> int:
        """Forgets the records up to and including number ``through``; returns how many there were. Raises OutboxUnavailable."""
        return await self._call(lambda: self._file.trim(through))

    async def wait_beyond(self, sequence: int) -> None:
        """Waits until there is a durable record with a higher number. Bound it with asyncio.timeout."""
        while self.last_sequence <= sequence:
            await self._changed.wait()

    async def wait_empty(self) -> None:
        """Waits until the ledger has every record. Bound it with asyncio.timeout."""
        while self.num_rows:
            await self._changed.wait()

    async def close(self) -> None:
        """Stores what still waits, then closes the file; later calls raise OutboxUnavailable."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        await asyncio.to_thread(self._thread.join)

    async def _call(self, call: Callable[[], T]) -> T:
        future: asyncio.Future[T] = self._loop.create_future()
        self._enqueue(_Job(future, call=call))
        return await future

    def _try_write(self) -> None:
        if self._trial is None or self._trial.done():
            self._trial = self._loop.create_future()
            self._trial.add_done_callback(self._take_trial)
            self._enqueue(_Job(self._trial, call=self._file.try_write))

    def _take_trial(self, trial: asyncio.Future[None]) -> None:
        if not trial.cancelled() and trial.exception() is None:
            self._is_refused = False

    def _enqueue(self, job: _Job) -> None:
        with self._wake:
            if self._closing:
                raise OutboxUnavailable("the outbox is closed")
            self._jobs.append(job)
            self._wake.notify()

    def _write_until_closed(self) -> None:
        while jobs := self._take():
            outcomes = self._carry_out(jobs)
            try:
                self._loop.call_soon_threadsafe(self._resolve, jobs, outcomes)
            except RuntimeError:  # The event loop is closed: nobody waits for the outcome any more.
                break
        self._file.close()

    def _take(self) -> list[_Job]:
        with self._wake:
            self._wake.wait_for(lambda: self._jobs or self._closing)
            jobs = list(self._jobs)
            self._jobs.clear()
            return jobs

    def _carry_out(self, jobs: list[_Job]) -> list[Any]:
        outcomes: list[Any] = []
        for is_draft, group in groupby(jobs, key=lambda job: job.draft is not None):
            batch = list(group)
            outcomes += self._store(batch) if is_draft else map(self._make, batch)
        return outcomes

    def _store(self, jobs: list[_Job]) -> list[Any]:
        try:
            return self._file.append([job.draft for job in jobs if job.draft])
        except InferwayError as error:
            return [error] * len(jobs)

    def _make(self, job: _Job) -> Any:
        try:
            return job.call() if job.call else None
        except InferwayError as error:
            return error

    def _resolve(self, jobs: list[_Job], outcomes: list[Any]) -> None:
        for job, outcome in zip(jobs, outcomes, strict=True):
            if job.draft is not None:
                self._is_refused = isinstance(outcome, OutboxUnavailable)
            if job.future.done():
                continue
            if isinstance(outcome, Exception):
                job.future.set_exception(outcome)
            else:
                job.future.set_result(outcome)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
