"""What the machine offers."""

from pathlib import Path

import pytest

from services.engine.node.config import NodeConfig
from services.engine.node.machine import DEFAULT_CPU_REPLICAS, Device, inspect


@pytest.fixture(autouse=True)
def no_driver_tool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))


def test_machine_without_gpu(tmp_path: Path) -> None:
    machine = inspect(NodeConfig(node_id="a", failure_domain="r1"), tmp_path)
    assert machine.devices == (Device("cpu", 0),)
    assert (machine.node_id, machine.failure_domain, machine.max_num_replicas) == ("a", "r1", DEFAULT_CPU_REPLICAS)
    assert machine.memory_bytes > 2**20


def test_machine_device_files_without_a_driver_tool(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia2", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    machine = inspect(NodeConfig(), tmp_path)
    assert machine.devices == (Device("cuda", 0), Device("cuda", 1), Device("cpu", 0))
    assert machine.max_num_replicas == 2


def test_machine_driver_tool_tells_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nvidia0").touch()
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho '0, 143771'\necho 'something else'\n")
    tool.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert inspect(NodeConfig(), tmp_path).devices[0] == Device("cuda", 0, 143771 * 2**20)


def test_machine_driver_tool_that_fails_is_no_reason_to_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nvidia0").touch()
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nexit 9\n")
    tool.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert inspect(NodeConfig(), tmp_path).devices == (Device("cuda", 0), Device("cpu", 0))


def test_machine_configured_bound_wins(tmp_path: Path) -> None:
    assert inspect(NodeConfig(max_num_replicas=9), tmp_path).max_num_replicas == 9
