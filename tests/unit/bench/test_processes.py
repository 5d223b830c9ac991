"""Processes of servers under test."""

import os
import subprocess
import sys

import psutil
import pytest

from bench import processes
from bench.processes import CpuReading


@pytest.mark.parametrize(
    ("command", "part"),
    [
        (["/usr/bin/python", "-P", "-m", "services.engine"], "engine"),
        (["python", "-m", "services.engine.node", "x"], "engine.node"),
        (["/opt/envoy", "-c", "e.yaml"], "envoy"),
        (["tool", "-m"], "tool"),
        (["/opt/server", "-m", "/models/one.gguf"], "server"),
        ([], "unknown"),
    ],
)
def test_part_is_named_after_what_runs(command: list[str], part: str) -> None:
    assert processes.part_of(command) == part


def test_time_of_others_is_what_is_left_of_the_machines() -> None:
    before, after = CpuReading(0.0, 10.0, 4.0), CpuReading(2.0, 13.0, 6.0)
    assert before.foreign_share(after) == 0.5


def test_time_of_others_is_never_negative() -> None:
    assert CpuReading(0.0, 0.0, 0.0).foreign_share(CpuReading(1.0, 1.0, 1.5)) == 0.0


def test_frozen_processes_stand_still_and_go_on_when_thawed() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    try:
        group = processes.tree(child.pid)
        assert [one.pid for one in group] == [child.pid]
        processes.freeze(group)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
        assert psutil.Process(child.pid).status() == psutil.STATUS_STOPPED
        processes.thaw(group)
        os.waitid(os.P_PID, child.pid, os.WCONTINUED | os.WNOWAIT)
        assert psutil.Process(child.pid).status() != psutil.STATUS_STOPPED
    finally:
        child.communicate()
    assert processes.tree(child.pid) == []
    assert processes.cpu_s(group) == 0.0
