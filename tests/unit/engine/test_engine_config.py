"""Settings of a replica: where they come from and what is refused before a socket opens."""

from pathlib import Path

import pytest

from services.engine.config import from_environ
from services.kit.errors import ConfigError

REQUIRED = {"INFERWAY_ENGINE_MODEL": "m"}


def test_from_environ_home_of_the_mesh_is_the_default() -> None:
    assert from_environ({**REQUIRED, "INFERWAY_HOME": "/somewhere"}).home == "/somewhere"
    assert from_environ({**REQUIRED, "INFERWAY_HOME": "/somewhere", "INFERWAY_ENGINE_HOME": "/own"}).home == "/own"


def test_from_environ_settings_reach_the_runner() -> None:
    settings = from_environ(
        {**REQUIRED, "INFERWAY_ENGINE_HOME": "/h", "INFERWAY_ENGINE_MODEL_VERSION": "v", "INFERWAY_ENGINE_NUM_BLOCKS": "7"}
    ).runner_settings
    assert (settings.model, settings.version, settings.home, settings.num_blocks) == ("m", "v", Path("/h"), 7)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "70000"),
        ("BLOCK_SIZE", "0"),
        ("MAX_NUM_SEQUENCES", "100000"),
        ("MAX_NUM_WAITING", "-1"),
        ("SPECULATIVE_TOKENS", "-1"),
        ("HEARTBEAT_BOUND_S", "0"),
        ("KAFKA_BOOTSTRAP", "127.0.0.1:9092"),
        ("UNHEARD_OF", "1"),
    ],
)
def test_from_environ_unusable_setting_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_environ({**REQUIRED, f"INFERWAY_ENGINE_{name}": value})
    assert name in caught.value.message.upper()
