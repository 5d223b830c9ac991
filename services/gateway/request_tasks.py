"""Owns the task of every request, so that one request's fault stays its own and a drain knows what is still in work.

A TaskGroup would end all requests when one of them raises; here the error goes to the answer of the request it belongs to.
"""

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial

from services.gateway.answer import Answer
from services.kit.errors import InferwayError, Internal, Unavailable

log = logging.getLogger(__name__)


class RequestTasks:
    """The requests in work."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, work: Coroutine[None, None, None], answer: Answer) -> None:
        """Runs the work; its end, or its error, closes the answer."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, answer))

    async def drain(self, timeout_s: float) -> None:
        """Waits for the requests; those that are not done in time are cancelled, settle, and end with an explicit error."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _ended(self, answer: Answer, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            answer.close(Unavailable("the service is shutting down", reason="DRAINING", retry_after_s=1.0))
            return
        error = task.exception()
        if error is not None and not isinstance(error, InferwayError):
            log.error("a request ended by an unexpected error", exc_info=error)
            error = Internal("internal error; quote the request id when you report it")
        answer.close(error)
