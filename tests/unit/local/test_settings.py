"""Settings are read completely, refused with a sentence, and survive the way to a child process."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.local.errors import LocalError
from deploy.local.settings import BrokerChoice, Runner, Settings


def test_settings_of_an_empty_environment_are_the_documented_defaults() -> None:
    settings = Settings.from_environ({})

    assert (settings.port_base, settings.runner, settings.broker, settings.num_replicas) == (8400, Runner.AUTO, BrokerChoice.AUTO, 2)
    assert settings.home.root.name == ".inferway" and settings.home.root.is_absolute()


def test_settings_written_for_a_child_are_read_back_equal(tmp_path: Path) -> None:
    settings = Settings.from_environ(
        {
            "INFERWAY_HOME": str(tmp_path),
            "INFERWAY_PORT_BASE": "20000",
            "INFERWAY_ENGINE_RUNNER": "sim",
            "INFERWAY_LOCAL_BROKER": "tansu",
            "INFERWAY_LOCAL_REPLICAS": "3",
            "INFERWAY_OTLP_ENDPOINT": "http://collector:4317/",
            "INFERWAY_KAFKA_BOOTSTRAP": "broker:9092",
            "INFERWAY_KAFKA_SASL_PASSWORD": "secret",
        }
    )

    assert Settings.from_environ(settings.to_environ()) == settings
    assert settings.otlp_endpoint == "collector:4317"


def test_settings_never_show_the_password() -> None:
    assert "hunter2" not in repr(Settings.from_environ({"INFERWAY_KAFKA_SASL_PASSWORD": "hunter2"}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("INFERWAY_PORT_BASE", "many"),
        ("INFERWAY_PORT_BASE", "80"),
        ("INFERWAY_ENGINE_RUNNER", "magic"),
        ("INFERWAY_LOCAL_BROKER", "rabbit"),
        ("INFERWAY_OTLP_ENDPOINT", "collector"),
        ("INFERWAY_OTLP_ENDPOINT", "https://collector:4317"),
        ("INFERWAY_OTLP_ENDPOINT", "http://collector:4317/v1/traces"),
    ],
)
def test_settings_with_a_bad_value_name_the_variable_and_a_way_out(name: str, value: str) -> None:
    with pytest.raises(LocalError) as caught:
        Settings.from_environ({name: value})

    assert name in caught.value.problem
    assert caught.value.remedy
