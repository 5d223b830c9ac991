"""What the broker is told: loopback only, quick to come back after kill -9, and one command line for every start."""

from __future__ import annotations

from pathlib import Path

from deploy.local.kafka import KafkaBroker


def broker(tmp_path: Path) -> KafkaBroker:
    return KafkaBroker(java=Path("/java"), libs=tmp_path, directory=tmp_path / "kafka", port=20062, controller_port=20063)


def test_properties_listen_on_the_loopback_interface_only(tmp_path: Path) -> None:
    lines = dict(line.split("=", 1) for line in broker(tmp_path).properties().splitlines())

    assert lines["listeners"] == "PLAINTEXT://127.0.0.1:20062,CONTROLLER://127.0.0.1:20063"
    assert lines["advertised.listeners"] == "PLAINTEXT://127.0.0.1:20062"
    assert int(lines["broker.session.timeout.ms"]) <= 3000


def test_argv_takes_the_jars_in_a_stable_order_with_a_bounded_heap(tmp_path: Path) -> None:
    for name in ("b.jar", "a.jar", "notes.txt"):
        (tmp_path / name).touch()

    argv = broker(tmp_path).argv()

    assert argv[argv.index("-cp") + 1] == f"{tmp_path}/a.jar:{tmp_path}/b.jar"
    assert "-Xmx256m" in argv
