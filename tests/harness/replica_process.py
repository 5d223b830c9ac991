"""The environment of a replica that runs as a process of its own."""

import os
import sys
from pathlib import Path

from tests.harness.tiny_model import NAME


def replica_environ(home: Path, **settings: object) -> dict[str, str]:
    """This process's environment with the settings of a replica of the tiny model on top."""
    mine = {f"INFERWAY_ENGINE_{name.upper()}": str(value) for name, value in settings.items()}
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "INFERWAY_HOME": str(home), "INFERWAY_ENGINE_MODEL": NAME, **mine}
