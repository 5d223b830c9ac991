"""What would make a start fail is named before anything starts."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from deploy.local import binaries, preflight
from deploy.local.errors import LocalError
from deploy.local.home import Home


def test_check_python_too_old_names_both_versions() -> None:
    with pytest.raises(LocalError, match=r"Python 3\.10 is too old\. .*3\.11"):
        preflight.check_python((3, 10))
    preflight.check_python((3, 11))


def test_check_disk_nearly_full_says_how_much_is_left(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match=r"Only 0\.5 GiB are free"):
        preflight.check_disk(Home(tmp_path), 1024**3 // 2)
    preflight.check_disk(Home(tmp_path), preflight.MIN_FREE_BYTES)


def test_check_ports_busy_names_each_port_and_its_use() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]

        with pytest.raises(LocalError, match=rf"Port {port} \(edge http.*INFERWAY_PORT_BASE"):
            preflight.check_ports({"edge_http": port})

    preflight.check_ports({"edge_http": port})


def test_find_missing_program_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    with pytest.raises(LocalError, match="program etcd is not installed"):
        binaries.find("etcd", packaged={"etcd": ("a_package_that_is_not_there", "etcd")})


def test_check_reserved_port_of_outgoing_connections_is_refused_with_a_way_out() -> None:
    with pytest.raises(LocalError) as caught:
        preflight.check_reserved({"broker": 33062, "router": 33020}, range(32768, 61000))
    assert "Port 33020 lies in the range 32768-60999" in str(caught.value)
    preflight.check_reserved({"router": 8420}, range(32768, 61000))
    preflight.check_reserved({"router": 33020}, range(0))
