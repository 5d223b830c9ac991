"""A router with a setting that cannot work does not start."""

from __future__ import annotations

from typing import Any

import pytest

from services.kit.config import load
from services.kit.errors import ConfigError
from services.router.config import PREFIX, RouterConfig


def test_config_defaults_are_valid() -> None:
    config = load(RouterConfig, PREFIX, {})
    assert [scorer.name for scorer in config.policy().scorers] == ["queue", "kv_room"]
    assert (config.admission_limits().max_queue_length, config.admission_limits().queue_timeout_s) == (256, 30.0)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("SCORERS", "queue=1,luck=2", "unknown scorer 'luck'"),
        ("SCORERS", "queue", "needs a weight"),
        ("MAX_QUEUE_LENGTH", "0", "at least 1"),
        ("QUEUE_TIMEOUT_S", "0", "above 0"),
        ("NO_REPLICA_GRACE_S", "-1", "not be negative"),
        ("PORT", "70000", "port"),
        ("NO_REPLICA_GRACE", "1", "unknown setting"),
    ],
)
def test_config_refuses(name: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(RouterConfig, PREFIX, {PREFIX + name: value})


def test_config_weights_reach_the_policy() -> None:
    values: dict[str, Any] = {PREFIX + "SCORERS": "kv_room=0.25"}
    assert [(scorer.name, scorer.weight) for scorer in load(RouterConfig, PREFIX, values).policy().scorers] == [("kv_room", 0.25)]
