"""A thread of its own for a client whose calls block, so that neither the event loop nor the end of the process waits for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class CallThread:
    """Runs calls one after the other in one daemon thread, which begins with the first call. Bounded by its users, who await each call."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._started = False

    async def run(self, call: Callable[[], T]) -> T:
        """Runs the call and raises what it raises. A cancelled caller leaves a call that has begun to end by itself."""
        return await asyncio.wrap_future(self._submit(call))

    async def close(self, last_call: Callable[[], None], timeout_s: float) -> None:
        """Runs the last call and ends the thread; after `timeout_s` both are left to themselves. Raises what that call raises."""
        last = asyncio.wrap_future(self._submit(last_call))
        self._jobs.put(None)
        done, _ = await asyncio.wait({last}, timeout=timeout_s)
        for each in done:
            each.result()

    def _submit(self, call: Callable[[], T]) -> Future[T]:
        if not self._started:
            self._started = True
            self._thread.start()
        future: Future[T] = Future()
        self._jobs.put((future, call))
        return future

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, call = job
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = call()
            except BaseException as error:  # Whatever it is belongs to the one who waits for the call.
                future.set_exception(error)
            else:
                future.set_result(result)
