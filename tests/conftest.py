"""What all tests share: how hypothesis runs, and one mesh on real Kafka, etcd and Envoy for e2e and fault tests.

The mesh's engines run the deterministic model, slowly enough to be hit.
"""

import pathlib
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from deploy.local.home import Home
from tests.harness.mesh import Mesh, running_mesh

STEP_MS = "25"

# No test may fail because other work keeps the machine busy.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


@pytest.fixture(scope="session")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    directory: pathlib.Path = tmp_path_factory.mktemp("mesh")
    environ = {"INFERWAY_ENGINE_RUNNER": "sim", "INFERWAY_LOCAL_BROKER": "kafka", "INFERWAY_ENGINE_SIM_STEP_MS": STEP_MS}
    with running_mesh(Home(directory).root, **environ) as mesh:
        yield mesh
