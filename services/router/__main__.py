"""Starts the router: python -m services.router, configured by INFERWAY_ROUTER_*."""

import os

from services.kit import config
from services.kit.server import main
from services.router.config import PREFIX, RouterConfig
from services.router.server import run_router


async def _entry() -> None:
    await run_router(config.load(RouterConfig, PREFIX, os.environ))


if __name__ == "__main__":
    main(_entry)
