"""The outbox files of one machine: each process owns one, and takes over the files of processes that died."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import uuid
from collections.abc import Iterator
from pathlib import Path

from services.kit.outbox import Outbox
from services.kit.outbox_file import OutboxFile, OutboxLocked

_log = logging.getLogger(__name__)


class OutboxDirectory:
    """Finds outbox files nobody owns. Made in the running event loop; ``max_bytes`` bounds each file."""

    def __init__(self, path: Path, *, max_bytes: int) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._max_bytes = max_bytes

    def open_own(self) -> Outbox:
        """The outbox of this process: a file that nobody owns (records of a dead process in it are shipped first), or a new one.

        A file that cannot be read is logged and left as it is. Raises OSError or sqlite3.Error when no new one can be made.
        """
        for file in self._unowned():
            return Outbox(file)
        return Outbox(OutboxFile(self._path / f"{uuid.uuid4()}.sqlite", self._max_bytes))

    async def adopt(self) -> list[Outbox]:
        """The outboxes of dead processes that still hold records; the caller ships and closes them."""
        return [Outbox(file) for file in await asyncio.to_thread(self._claim_orphans)]

    def _claim_orphans(self) -> list[OutboxFile]:
        claimed = []
        for file in self._unowned():
            if file.num_rows:
                claimed.append(file)
            else:
                file.close()
        return claimed

    def _unowned(self) -> Iterator[OutboxFile]:
        for path in sorted(self._path.glob("*.sqlite")):
            try:
                file = OutboxFile(path, self._max_bytes)
            except OutboxLocked:
                continue
            except (OSError, sqlite3.Error) as error:  # Somebody has to look after it; until then it must stop nobody's work.
                _log.error("an outbox file cannot be read and is left as it is", extra={"fields": {"file": path.name, "error": str(error)}})
                continue
            yield file
