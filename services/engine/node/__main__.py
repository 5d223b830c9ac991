"""`python -m services.engine.node`."""

from services.engine.node.server import run
from services.kit.server import main

if __name__ == "__main__":
    main(run, starts_processes=True)
