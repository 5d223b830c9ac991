"""The one-off steps that need no other container."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from deploy.compose.config import PrepareConfig
from deploy.compose.prepare import MODEL_CARDS, main, prepare_edge, prepare_model
from services.engine.cpu_runner.packed_file import read_packed
from services.engine.llama import read_config
from services.kit.model_store import ModelStore
from tests.harness.edge import envoy_binary


def test_prepare_edge_writes_a_configuration_that_envoy_accepts(tmp_path: Path) -> None:
    prepare_edge(PrepareConfig(edge_directory=str(tmp_path), gateway_address="gateway:9110"))
    file = tmp_path / "envoy.yaml"
    run = subprocess.run([envoy_binary(), "--mode", "validate", "-c", str(file)], capture_output=True, text=True, timeout=50, check=False)
    assert run.returncode == 0, run.stderr
    tree = yaml.safe_load(file.read_text())
    assert tree["static_resources"]["clusters"][0]["type"] == "STRICT_DNS"
    assert tree["admin"]["address"]["socket_address"]["address"] == "127.0.0.1"


def test_prepare_edge_again_keeps_the_certificates(tmp_path: Path) -> None:
    settings = PrepareConfig(edge_directory=str(tmp_path))
    prepare_edge(settings)
    first = (tmp_path / "server.pem").read_bytes()
    prepare_edge(settings)
    assert (tmp_path / "server.pem").read_bytes() == first


def test_prepare_model_leaves_what_a_replica_that_may_only_read_maps(tmp_path: Path) -> None:
    settings = PrepareConfig(home=str(tmp_path))
    prepare_model(settings)
    version = ModelStore(tmp_path).get(settings.model)
    (packed,) = version.path.glob("packed-*.bin")
    assert len(read_packed(packed).layers) == read_config(version).num_layers


def test_prepare_names_a_model_card_that_exists() -> None:
    assert (MODEL_CARDS / f"{PrepareConfig().model}.yaml").is_file()


@pytest.mark.parametrize("arguments", [[], ["unknown"], ["edge", "mesh"]])
def test_main_unknown_step_is_a_sentence(arguments: list[str]) -> None:
    with pytest.raises(SystemExit, match="usage: "):
        main(arguments)


def test_main_unknown_setting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERWAY_PREPARE_TYPO", "1")
    with pytest.raises(SystemExit, match="INFERWAY_PREPARE_TYPO"):
        main(["edge"])


def test_config_gateway_address_needs_a_port() -> None:
    with pytest.raises(ValueError, match="host:port"):
        PrepareConfig(gateway_address="gateway")
