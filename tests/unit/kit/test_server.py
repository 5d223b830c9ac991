"""How a service's process begins."""

import asyncio
import gc
from collections.abc import Iterator

import pytest
import uvloop

from services.kit import server
from services.kit.errors import ConfigError


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


def test_main_wrong_config_says_so_and_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    async def entry() -> None:
        raise ConfigError("INFERWAY_ROUTER_PORT must be a number")

    with pytest.raises(SystemExit) as exit_:
        server.main(entry)

    assert exit_.value.code == 2
    assert "INFERWAY_ROUTER_PORT must be a number" in capsys.readouterr().err
