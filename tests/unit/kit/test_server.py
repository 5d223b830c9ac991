"""How a service's process begins."""

import asyncio
import gc
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop

from services.kit import server
from services.kit.errors import ConfigError

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def thaw() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_main_service_runs_on_uvloop() -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    async def entry() -> None:
        loops.append(asyncio.get_running_loop())

    server.main(entry)

    assert [type(loop) for loop in loops] == [uvloop.Loop]


_COUNT_FORKS = """
import asyncio, ctypes, sys
from services.kit import server

forks = []
handler = ctypes.CFUNCTYPE(None)(lambda: forks.append(1))
ctypes.CDLL(None).__register_atfork(handler, None, None, None)

async def entry():
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "", start_new_session=True)
    print(await process.wait(), len(forks))

server.main(entry, starts_processes=True)
"""


def test_main_service_that_starts_processes_does_so_without_handlers_of_forks() -> None:
    done = subprocess.run([sys.executable, "-c", _COUNT_FORKS], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True)

    assert done.stdout.split() == ["0", "0"]


def test_main_wrong_config_says_so_and_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    async def entry() -> None:
        raise ConfigError("INFERWAY_ROUTER_PORT must be a number")

    with pytest.raises(SystemExit) as exit_:
        server.main(entry)

    assert exit_.value.code == 2
    assert "INFERWAY_ROUTER_PORT must be a number" in capsys.readouterr().err
