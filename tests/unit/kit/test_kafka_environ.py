"""INFERWAY_KAFKA_*: complete, checked, and the same for every service."""

from __future__ import annotations

import pytest

from services.kit.errors import ConfigError
from services.kit.kafka_environ import KafkaSecurity, kafka_settings

SECURED = {
    "INFERWAY_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
    "INFERWAY_KAFKA_TLS_CA": "/ca.pem",
    "INFERWAY_KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
    "INFERWAY_KAFKA_SASL_USERNAME": "inferway",
    "INFERWAY_KAFKA_SASL_PASSWORD": "hunter2",
}


def test_kafka_settings_of_a_secured_cluster_reach_the_client() -> None:
    options = kafka_settings(["a:9093", "b:9093"], SECURED).client_options()

    assert options["bootstrap_servers"] == ["a:9093", "b:9093"]
    assert (options["security_protocol"], options["ssl_cafile"]) == ("SASL_SSL", "/ca.pem")
    assert (options["sasl_mechanism"], options["sasl_plain_username"], options["sasl_plain_password"]) == (
        "SCRAM-SHA-512",
        "inferway",
        "hunter2",
    )


def test_kafka_settings_of_an_empty_environment_are_plain_text() -> None:
    assert kafka_settings(["a:9092"], {"INFERWAY_KAFKA_BOOTSTRAP": "a:9092"}).security_protocol == "PLAINTEXT"


@pytest.mark.parametrize(
    "environ",
    [
        {"INFERWAY_KAFKA_SECURITY_PROTOCOL": "TLS"},
        {"INFERWAY_KAFKA_SASL_MECHANISM": "PLAIN"},
        {"INFERWAY_KAFKA_SECURITY_PROTOCOL": "SASL_SSL"},
        {"INFERWAY_KAFKA_TLS_KEY": "/key.pem"},
        {"INFERWAY_KAFKA_TLS_CAFILE": "/ca.pem"},
    ],
)
def test_kafka_settings_that_would_be_silently_inert_are_refused(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="INFERWAY_KAFKA_"):
        kafka_settings(["a:9092"], environ)


def test_kafka_security_never_shows_the_password() -> None:
    assert "hunter2" not in repr(KafkaSecurity("", "SASL_SSL", sasl_mechanism="PLAIN", sasl_password="hunter2"))
