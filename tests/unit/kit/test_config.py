"""Configuration from the environment: every problem is told at once, before anything starts."""

from dataclasses import dataclass

import pytest

from services.kit.config import load, require
from services.kit.errors import ConfigError


@dataclass(frozen=True)
class Example:
    address: str
    port: int = 80
    ratio: float = 0.5
    verbose: bool = False
    peers: tuple[str, ...] = ()
    ca_file: str | None = None

    def __post_init__(self) -> None:
        require(0 <= self.port < 65536, "port must be within 0 to 65535")


def test_load_reads_every_type() -> None:
    environ = {"X_ADDRESS": "a:1", "X_PORT": "7", "X_RATIO": "0.25", "X_VERBOSE": "true", "X_PEERS": "a, b", "X_CA_FILE": "ca"}
    assert load(Example, "X_", environ) == Example("a:1", 7, 0.25, True, ("a", "b"), "ca")


def test_load_empty_value_counts_as_unset() -> None:
    assert load(Example, "X_", {"X_ADDRESS": "a", "X_PORT": ""}).port == 80


def test_load_lists_all_problems_at_once() -> None:
    environ = {"X_PORT": "many", "X_RATIO": "nan", "X_VERBOSE": "perhaps", "X_PROT": "1"}
    with pytest.raises(ConfigError) as caught:
        load(Example, "X_", environ)
    message = caught.value.message
    for part in ("X_ADDRESS: is required", "X_PORT: must be a whole", "X_RATIO: must be a finite", "X_VERBOSE: must be", "X_PROT: unknown"):
        assert part in message


def test_load_value_out_of_range_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="port must be"):
        load(Example, "X_", {"X_ADDRESS": "a", "X_PORT": "70000"})
