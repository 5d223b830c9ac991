"""Ports for servers of tests, below those that the system gives to connections: a server that was killed finds its own again."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from random import SystemRandom

_FIRST, _LAST = 10_000, 19_999


class _Walk:
    """Goes round the ports from a place that no seed decides: no port comes twice soon, and tests at the same time are elsewhere."""

    def __init__(self) -> None:
        self._next = SystemRandom().randint(_FIRST, _LAST)

    def take(self, count: int) -> range:
        """Consecutive ports that are free now."""
        while True:
            first = self._next if self._next + count - 1 <= _LAST else _FIRST
            self._next = first + count
            if _are_free(ports := range(first, first + count)):
                return ports


_walk = _Walk()


def free_port() -> int:
    """A TCP port of loopback that was free a moment ago."""
    return free_range(1)[0]


def free_range(count: int) -> range:
    """Such ports in a row."""
    return _walk.take(count)


def _are_free(ports: range) -> bool:
    with ExitStack() as stack:
        for port in ports:
            probe = stack.enter_context(socket.socket())
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True
