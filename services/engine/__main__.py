"""One engine replica: `python -m services.engine`, configured by INFERWAY_ENGINE_*."""

import os

from services.engine.config import from_environ
from services.engine.server import serve_replica
from services.kit import server


async def run() -> None:
    """Serve until SIGTERM."""
    await serve_replica(from_environ(os.environ))


if __name__ == "__main__":
    server.main(run)
