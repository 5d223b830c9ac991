"""One engine replica: `python -m services.engine`, configured by INFERWAY_ENGINE_*; or, with `--self-check MODEL`, a check of a model."""

import os
import sys

from services.engine.config import from_environ
from services.engine.self_check import command as self_check
from services.engine.server import serve_replica
from services.kit import server


async def run() -> None:
    """Serve until SIGTERM."""
    await serve_replica(from_environ(os.environ))


if __name__ == "__main__":
    if self_check.FLAG in sys.argv:
        sys.exit(self_check.main(sys.argv[1:]))
    server.main(run)
