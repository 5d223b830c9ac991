"""Ports for replicas, out of one range, each given to one replica at a time and free at that moment."""

import socket

from services.kit.errors import ResourceExhausted


class PortPool:
    """Gives out ports first..last of `host`, both included. The owner gives each back when its replica has ended."""

    def __init__(self, host: str, first: int, last: int) -> None:
        self._host = host
        self._range = range(first, last + 1)
        self._taken: set[int] = set()

    def take(self) -> int:
        """The lowest port that neither the pool has given out nor anybody listens on. ResourceExhausted when there is none."""
        for port in self._range:
            if port not in self._taken and self._is_free(port):
                self._taken.add(port)
                return port
        raise ResourceExhausted(
            f"no free port in {self._range.start}-{self._range.stop - 1} on {self._host}", reason="DEPENDENCY_UNAVAILABLE"
        )

    def give_back(self, port: int) -> None:
        """The port may be given out again."""
        self._taken.discard(port)

    def _is_free(self, port: int) -> bool:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((self._host, port))
            except OSError:
                return False
        return True
