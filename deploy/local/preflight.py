"""Looks before it leaps: everything on this machine that would make a start fail, named in one sentence with what to do."""

import errno
import shutil
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil

from deploy.local import binaries
from deploy.local.errors import LocalError
from deploy.local.home import Home
from deploy.local.settings import Settings

MIN_PYTHON = (3, 11)
MIN_FREE_BYTES = 2 * 1024**3


def check(settings: Settings) -> None:
    """Python, the home directory, disk space and programs; raises LocalError for the first that is wrong."""
    check_python(sys.version_info[:2])
    settings.home.create()
    check_disk(settings.home, shutil.disk_usage(settings.home.root).free)
    for program in ("etcd", "envoy"):
        binaries.find(program)


def check_python(version: tuple[int, int]) -> None:
    """Raises LocalError when the interpreter is too old."""
    if version < MIN_PYTHON:
        found, needed = ".".join(map(str, version)), ".".join(map(str, MIN_PYTHON))
        raise LocalError(f"Python {found} is too old.", f"Run `make PYTHON=python{needed} setup` with Python {needed} or newer.")


def check_disk(home: Home, free_bytes: int) -> None:
    """Raises LocalError when the file system of `home` has less than MIN_FREE_BYTES left."""
    if free_bytes < MIN_FREE_BYTES:
        raise LocalError(
            f"Only {free_bytes / 1024**3:.1f} GiB are free where {home.root} lies, and {MIN_FREE_BYTES // 1024**3} GiB are needed.",
            "Free some space, or set INFERWAY_HOME to a larger disk.",
        )


def check_ports(listeners: Mapping[str, int]) -> None:
    """Raises LocalError that names every busy port of `listeners` and, where the system tells, who holds it."""
    busy = {name: port for name, port in listeners.items() if not is_free(port)}
    if busy:
        names = ", ".join(f"{port} ({name.replace('_', ' ')}{_holder(port)})" for name, port in busy.items())
        noun = "Port" if len(busy) == 1 else "Ports"
        raise LocalError(f"{noun} {names} on 127.0.0.1 cannot be used.", "Stop what uses it, or set INFERWAY_PORT_BASE to another base.")


def ephemeral_ports() -> range:
    """Ports that the system gives to outgoing connections; empty where it does not say."""
    try:
        first, last = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    except (OSError, ValueError):
        return range(0)
    return range(int(first), int(last) + 1)


def check_reserved(listeners: Mapping[str, int], ephemeral: range) -> None:
    """Raises LocalError when a listener lies among the ports of outgoing connections: any of them may take its port at any time."""
    if taken := [port for port in listeners.values() if port in ephemeral]:
        raise LocalError(
            f"Port {min(taken)} lies in the range {ephemeral[0]}-{ephemeral[-1]} that this system gives to outgoing connections.",
            f"Set INFERWAY_PORT_BASE below {ephemeral[0] - 200}.",
        )


def is_free(port: int) -> bool:
    """True when a server could listen on the loopback `port` now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
    return True


def _holder(port: int) -> str:
    """`, held by NAME, pid N` where the system lets us see it, else nothing."""
    try:
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr[1] == port and connection.pid:
                return f", held by {psutil.Process(connection.pid).name()}, pid {connection.pid}"
    except (psutil.Error, OSError):
        return ""
    return ""


def check_model_card(card: Path) -> None:
    """Raises LocalError when the card of the demo model is not there."""
    if not card.is_file():
        raise LocalError(f"The model card {card} is missing.", "Run the command from a complete checkout.")
