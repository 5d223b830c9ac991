"""A process-long bidirectional stream to another service: what waits to be said, and one connection's life from hello to its end."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

import grpc

Out = TypeVar("Out")
In = TypeVar("In")


class Outgoing(Generic[Out]):
    """Messages that wait to be written. Bounded by its users: each request in work has a fixed number of messages on a link."""

    def __init__(self) -> None:
        self._messages: deque[Out] = deque()
        self._filled = asyncio.Event()

    def put(self, message: Out) -> None:
        """Adds a message."""
        self._messages.append(message)
        self._filled.set()

    def clear(self) -> None:
        """Forgets all messages: they were meant for a connection that is gone."""
        self._messages.clear()
        self._filled.clear()

    async def take(self) -> Out:
        """Waits for the next message."""
        while not self._messages:
            self._filled.clear()
            await self._filled.wait()
        return self._messages.popleft()


async def attend(
    call: "grpc.aio.StreamStreamCall[Out, In]",
    hello: Out,
    outgoing: Outgoing[Out],
    on_open: Callable[[], None],
    on_message: Callable[[In], None],
    connect_timeout_s: float,
) -> str:
    """Says hello, then writes what comes and hands over what arrives until the stream ends; returns why it ended, in a word or two.

    `on_open` runs once the hello is written, unless that takes longer than `connect_timeout_s`. When cancelled it cancels the call.
    """
    try:
        async with asyncio.timeout(connect_timeout_s):
            opened = await _write(call, hello)
        if opened:
            on_open()
        async with asyncio.TaskGroup() as tasks:
            writer = tasks.create_task(_write_all(call, outgoing))
            problem = await _read_all(call, on_message)
            writer.cancel()
        return problem
    except TimeoutError:
        return "not reachable in time"
    finally:
        call.cancel()


async def _read_all(call: "grpc.aio.StreamStreamCall[Out, In]", on_message: Callable[[In], None]) -> str:
    try:
        while (message := await call.read()) is not grpc.aio.EOF:
            on_message(message)  # type: ignore[arg-type]
    except grpc.aio.AioRpcError as error:
        return error.code().name
    return "closed by the other side"


async def _write_all(call: "grpc.aio.StreamStreamCall[Out, In]", outgoing: Outgoing[Out]) -> None:
    while await _write(call, await outgoing.take()):
        pass


async def _write(call: "grpc.aio.StreamStreamCall[Out, In]", message: Out) -> bool:
    """False when the stream has ended; the reader learns why."""
    try:
        await call.write(message)
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        return False
    return True
