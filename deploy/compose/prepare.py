"""The one-off steps between the containers of a mesh: Envoy's files, the demo model, the first keys and the first deployment.

Each is idempotent, so that `docker compose up` may be repeated. Usage: python -m deploy.compose.prepare edge|model|mesh
"""

import asyncio
import datetime
import os
import sys
from pathlib import Path

from deploy.compose.config import PREFIX, PrepareConfig
from services.kit import config
from services.kit.errors import ConfigError

MODEL_CARDS = Path(__file__).resolve().parents[2] / "models"


def prepare_edge(settings: PrepareConfig) -> None:
    """Write certificates, descriptor set and Envoy's configuration below `edge_directory`."""
    from deploy.envoy.descriptor import write_descriptor
    from deploy.envoy.render import render_yaml
    from deploy.envoy.settings import EdgeSettings, TlsFiles
    from deploy.local.certs import ensure

    directory = Path(settings.edge_directory)
    certificates = ensure(directory, datetime.datetime.now(datetime.UTC))
    host, _, port = settings.gateway_address.rpartition(":")
    edge = EdgeSettings(
        descriptor=write_descriptor(directory / "edge.binpb"),
        gateways=((host, int(port)),),
        plain_host="0.0.0.0",
        plain_port=settings.edge_plain_port,
        tls=TlsFiles(certificates.server, certificates.server_key),
        tls_host="0.0.0.0",
        tls_port=settings.edge_tls_port,
        admin_port=settings.edge_admin_port,
    )
    (directory / "envoy.yaml").write_text(render_yaml(edge))


def prepare_model(settings: PrepareConfig) -> None:
    """Import the demo model into the store of `home` and pack it for the CPU kernels: replicas, which may only read, share the file."""
    from services.engine.cpu_runner.weights import load_weights
    from services.engine.llama import read_config
    from services.engine.model.card import load_card
    from services.engine.model.importer import import_card

    version = import_card(load_card(MODEL_CARDS / f"{settings.model}.yaml"), Path(settings.home), lambda *_: None)
    load_weights(version, read_config(version))


async def prepare_mesh(settings: PrepareConfig) -> None:
    """Make the first tenants and keys, and deploy the demo model unless somebody has."""
    from deploy.local import local_keys
    from deploy.local.clients import Scheduler
    from deploy.local.home import Home
    from services.kit import channel
    from services.kit.etcd import EtcdClient

    registry = EtcdClient(list(settings.etcd_endpoints))
    try:
        await local_keys.ensure(registry, Home(Path(settings.home)))
    finally:
        await registry.close()
    async with channel.connect(settings.scheduler_address) as connection:
        scheduler = Scheduler(connection)
        if await scheduler.deployment(settings.model) is None:
            await scheduler.deploy(settings.model, settings.num_replicas)


def main(arguments: list[str]) -> None:
    """Run the one step that is named; a ConfigError or an unknown step ends with code 2 and a sentence."""
    try:
        settings = config.load(PrepareConfig, PREFIX, os.environ)
    except ConfigError as error:
        sys.exit(f"cannot start:\n{error.message}")
    match arguments:
        case ["edge"]:
            prepare_edge(settings)
        case ["model"]:
            prepare_model(settings)
        case ["mesh"]:
            asyncio.run(prepare_mesh(settings))
        case _:
            sys.exit("usage: python -m deploy.compose.prepare edge|model|mesh")


if __name__ == "__main__":
    main(sys.argv[1:])
