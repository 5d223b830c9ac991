"""Which broker is chosen, on which machine, and what is said about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.local.broker import BrokerKind, bootstrap, child, decide
from deploy.local.errors import LocalError
from deploy.local.settings import Settings


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """A machine without Maven and with an empty cache."""
    return {"PATH": str(tmp_path / "empty"), "XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path)}


def test_decide_with_an_existing_cluster_starts_no_broker(bare: dict[str, str]) -> None:
    settings = Settings.from_environ({"INFERWAY_KAFKA_BOOTSTRAP": "kafka.example:9092"})

    decision = decide(settings, bare)

    assert decision.kind is BrokerKind.EXTERNAL
    assert child(decision.kind, settings, bare) is None
    assert bootstrap(settings) == "kafka.example:9092"


def test_decide_without_maven_takes_tansu_and_says_so(bare: dict[str, str]) -> None:
    settings = Settings.from_environ({})

    decision = decide(settings, bare)

    assert decision.kind is BrokerKind.TANSU
    assert "Maven" in decision.reason and "memory" in decision.reason


def test_decide_with_kafka_demanded_but_impossible_is_refused(bare: dict[str, str]) -> None:
    with pytest.raises(LocalError, match="Maven"):
        decide(Settings.from_environ({"INFERWAY_LOCAL_BROKER": "kafka"}), bare)


def test_tansu_listens_on_the_loopback_interface_only(bare: dict[str, str]) -> None:
    settings = Settings.from_environ({"INFERWAY_LOCAL_BROKER": "tansu", "INFERWAY_PORT_BASE": "20000"})

    spec = child(decide(settings, bare).kind, settings, bare)

    assert spec is not None
    assert "--listener-url=tcp://127.0.0.1:20062" in spec.argv
