"""Replica processes of the operating system."""

import os
import signal
import sys
from pathlib import Path

import pytest

from services.engine.node.config import NodeConfig
from services.engine.node.launcher import LaunchError, ProcessEnd
from services.engine.node.order import Order
from services.engine.node.process import ProcessLauncher, describe_end
from tests.harness.pids import until_gone
from tests.harness.ports import free_range

ORDER = Order("m-0", "m")


def launcher(home: Path, script: str, num_ports: int = 4) -> ProcessLauncher:
    ports = free_range(num_ports)
    config = NodeConfig(
        home=str(home),
        replica_command=(sys.executable, "-I", "-S", "-c", script),
        replica_port_first=ports[0],
        replica_port_last=ports[-1],
    )
    return ProcessLauncher(config, {"PATH": os.environ["PATH"]})


@pytest.mark.parametrize(
    ("status", "last_word", "end"),
    [
        (0, "bye", ProcessEnd("exit", "ended with status 0")),
        (3, "bad weights", ProcessEnd("exit", "ended with status 3: bad weights")),
        (3, "", ProcessEnd("exit", "ended with status 3")),
        (-signal.SIGKILL, "", ProcessEnd("signal", "was killed by SIGKILL")),
        (-200, "", ProcessEnd("signal", "was killed by signal 200")),
    ],
)
def test_describe_end(status: int, last_word: str, end: ProcessEnd) -> None:
    assert describe_end(status, last_word) == end


async def test_process_output_goes_to_its_log_and_its_end_is_told(tmp_path: Path) -> None:
    process = await launcher(tmp_path, "import sys; print('hello', flush=True); sys.exit('no weights')").launch(ORDER)
    assert await process.wait() == ProcessEnd("exit", "ended with status 1: no weights")
    assert await process.wait() == await process.wait(), "the end may be asked for again"
    log = tmp_path / "logs" / "replica-m-0.log"
    assert log.read_text().splitlines() == ["hello", "no weights"]
    assert log.stat().st_mode & 0o077 == 0


async def test_process_leads_its_own_group_and_takes_it_along(tmp_path: Path) -> None:
    script = "import os, time\nchild = os.fork()\nprint(child, flush=True) if child else time.sleep(60)"
    process = await launcher(tmp_path, script).launch(ORDER)
    assert os.getpgid(process.pid) == process.pid
    await process.wait()
    child = int((tmp_path / "logs" / "replica-m-0.log").read_text())
    await until_gone(child)


async def test_process_kill_ends_it(tmp_path: Path) -> None:
    process = await launcher(tmp_path, "import time; time.sleep(60)").launch(ORDER)
    process.kill()
    assert (await process.wait()).sentence == "was killed by SIGKILL"
    process.kill()
    process.terminate()


async def test_process_ports_come_back_with_its_end(tmp_path: Path) -> None:
    two_ports = launcher(tmp_path, "import time; time.sleep(60)", num_ports=2)
    first = await two_ports.launch(ORDER)
    with pytest.raises(LaunchError, match="no free port"):
        await two_ports.launch(ORDER)
    first.kill()
    await first.wait()
    second = await two_ports.launch(ORDER)
    assert second.address == first.address
    await first.wait()  # Asked again, it does not give away the ports of its successor.
    with pytest.raises(LaunchError):
        await two_ports.launch(ORDER)
    second.kill()
    await second.wait()


async def test_process_program_that_does_not_exist_is_named(tmp_path: Path) -> None:
    ports = free_range(4)
    command = ("/no/such/program",)
    config = NodeConfig(home=str(tmp_path), replica_command=command, replica_port_first=ports[0], replica_port_last=ports[-1])
    process = await ProcessLauncher(config, {}).launch(ORDER)
    assert (await process.wait()).sentence == "ended with status 1: cannot start /no/such/program: No such file or directory"


async def test_process_home_that_cannot_be_written_is_a_launch_error(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file, not a directory")
    with pytest.raises(LaunchError, match="could not be started"):
        await launcher(tmp_path, "").launch(ORDER)
