"""A control plane of real processes."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.harness.control_plane import ControlPlane
from tests.harness.etcd import EtcdServer
from tests.harness.tiny_model import write_tiny_model


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[ControlPlane]:
    etcd = EtcdServer(tmp_path / "etcd")
    await etcd.start()
    write_tiny_model(tmp_path)
    plane = ControlPlane(tmp_path, etcd)
    yield plane
    await plane.close()
    etcd.kill()
