"""A control plane of real processes."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.harness.control_plane import ControlPlane
from tests.harness.etcd import EtcdServer
from tests.harness.tiny_model import write_tiny_model


@pytest.fixture
async def etcd(tmp_path: Path) -> AsyncIterator[EtcdServer]:
    etcd = EtcdServer(tmp_path / "etcd")
    try:
        await etcd.start()
        yield etcd
    finally:
        etcd.kill()


@pytest.fixture
async def plane(tmp_path: Path, etcd: EtcdServer) -> AsyncIterator[ControlPlane]:
    write_tiny_model(tmp_path)
    plane = ControlPlane(tmp_path, etcd)
    yield plane
    await plane.close()
