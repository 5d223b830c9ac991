"""What tests of faults share: each finds the mesh at rest, whatever was asked or broken before it, and leaves it so."""

from collections.abc import AsyncIterator

import pytest

from tests.harness.measure import at_rest
from tests.harness.mesh import Mesh


@pytest.fixture(autouse=True)
async def rest(mesh: Mesh) -> AsyncIterator[None]:
    await at_rest(mesh)
    yield
    await at_rest(mesh)
