"""The bench of the request lifecycle, checked for leftovers after every test."""

from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.harness.gateway_bench import Bench


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """A fresh bench; at the end nothing may be in work or held."""
    with ThreadPoolExecutor(1) as threads:
        bench = Bench(threads)
        yield bench
        await bench.idle()
