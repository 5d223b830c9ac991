"""Settings of the node agent."""

import pytest

from services.engine.node.config import PREFIX, NodeConfig
from services.kit.config import load
from services.kit.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("REPLICA_PORT_FIRST", "80"),
        ("REPLICA_PORT_LAST", "9300"),
        ("NODE_ID", "a/b"),
        ("MAX_NUM_REPLICAS", "-1"),
        ("HEALTH_INTERVAL_S", "0"),
        ("LEASE_TTL_S", "0"),
        ("LOG_MAX_BYTES", "1"),
        ("PORT", "70000"),
        ("NO_SUCH", "1"),
    ],
)
def test_config_bad_value_is_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigError):
        load(NodeConfig, PREFIX, {PREFIX + name: value})


def test_config_defaults_are_valid_and_start_the_engine() -> None:
    config = load(NodeConfig, PREFIX, {})
    assert config.replica_command[1:] == ("-m", "services.engine")
    assert config.reachable_host == config.host


def test_config_advertised_host_is_where_others_reach_the_node() -> None:
    assert load(NodeConfig, PREFIX, {PREFIX + "HOST": "0.0.0.0", PREFIX + "ADVERTISED_HOST": "node-a"}).reachable_host == "node-a"
