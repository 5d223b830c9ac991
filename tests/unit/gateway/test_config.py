"""Settings are complete and checked before a socket opens."""

import pytest

from services.gateway.config import PREFIX, GatewayConfig
from services.kit.config import load
from services.kit.errors import ConfigError


def test_config_defaults_are_valid() -> None:
    config = load(GatewayConfig, PREFIX, {})
    assert (config.request_deadline_s, config.max_num_attempts, config.cancel_timeout_s) == (600.0, 3, 2.0)
    assert config.gateway_id != load(GatewayConfig, PREFIX, {f"{PREFIX}GATEWAY_ID": "g1"}).gateway_id == "g1"


def test_config_lists_are_comma_separated() -> None:
    config = load(GatewayConfig, PREFIX, {f"{PREFIX}ETCD_ENDPOINTS": "a:1, b:2", f"{PREFIX}KAFKA_BOOTSTRAP": "k:9"})
    assert (config.etcd_endpoints, config.kafka_bootstrap) == (("a:1", "b:2"), ("k:9",))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "70000"),
        ("MAX_NUM_REQUESTS", "0"),
        ("MAX_NUM_ATTEMPTS", "0"),
        ("MAX_BODY_BYTES", "-1"),
        ("REQUEST_DEADLINE_S", "0"),
        ("ROUTER_AWAY_S", "-1"),
        ("DRAIN_TIMEOUT_S", "-1"),
        ("TRACE_SAMPLE_RATIO", "2"),
        ("ETCD_ENDPOINTS", ","),
        ("NO_SUCH_SETTING", "1"),
    ],
)
def test_config_bad_setting_is_named(name: str, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(GatewayConfig, PREFIX, {PREFIX + name: value})
    assert name.lower() in caught.value.message.lower()


def test_gateway_id_of_two_gateways_differs_even_where_host_name_and_process_id_are_the_same() -> None:
    assert GatewayConfig().gateway_id != GatewayConfig().gateway_id
