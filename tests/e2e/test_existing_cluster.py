"""INFERWAY_KAFKA_*: a mesh on somebody else's Kafka, with TLS and a password, starts no broker and bills through that one."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path

import pytest

from deploy.local import probes
from tests.harness import smollm
from tests.harness.broker import Broker, kafka_in
from tests.harness.mesh import running_mesh
from tests.harness.secured_kafka import USER, SecuredKafka

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[SecuredKafka]:
    kafka = SecuredKafka(**asdict(kafka_in(tmp_path / "kafka")), password=secrets.token_hex(12))
    kafka.prepare()

    async def probe() -> bool:
        return await probes.is_listening(kafka.port)

    broker = Broker(kafka, probe)
    try:
        await broker.start()
        yield kafka
    finally:
        await broker.stop()


async def test_mesh_on_a_secured_cluster_bills_through_it(cluster: SecuredKafka, tmp_path: Path) -> None:
    smollm.smollm()
    environ = {
        "INFERWAY_ENGINE_RUNNER": "sim",
        "INFERWAY_KAFKA_BOOTSTRAP": f"127.0.0.1:{cluster.port}",
        "INFERWAY_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
        "INFERWAY_KAFKA_TLS_CA": str(cluster.certificates.ca),
        "INFERWAY_KAFKA_SASL_MECHANISM": "PLAIN",
        "INFERWAY_KAFKA_SASL_USERNAME": USER,
        "INFERWAY_KAFKA_SASL_PASSWORD": cluster.password,
    }
    with running_mesh(tmp_path / "home", smollm.HOME / "models", **environ) as mesh:
        status = json.loads(mesh.run("status", "--json").stdout)
        smoke = json.loads(mesh.run("smoke", "--json", "--requests", "6", "--concurrency", "3").stdout)

    assert status["broker"] == "external cluster"
    assert not {one["service"] for one in status["services"]} & {"kafka", "tansu"}
    assert (smoke["failed"], smoke["ledger_mismatches"], smoke["ledger_equal"]) == ([], [], True)
    assert all(cluster.password not in log.read_text(errors="replace") for log in (tmp_path / "home" / "logs").iterdir())
