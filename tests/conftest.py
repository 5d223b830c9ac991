"""One mesh on real Kafka, etcd and Envoy for e2e and fault tests; its engines run the deterministic model, slowly enough to be hit."""

import pathlib
from collections.abc import Iterator

import pytest

from deploy.local.home import Home
from tests.harness.mesh import Mesh, running_mesh

STEP_MS = "25"


@pytest.fixture(scope="session")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    directory: pathlib.Path = tmp_path_factory.mktemp("mesh")
    environ = {"INFERWAY_ENGINE_RUNNER": "sim", "INFERWAY_LOCAL_BROKER": "kafka", "INFERWAY_ENGINE_SIM_STEP_MS": STEP_MS}
    with running_mesh(Home(directory).root, **environ) as mesh:
        yield mesh
