"""Starts the gateway: python -m services.gateway."""

from services.gateway.server import main
from services.kit.server import main as run

if __name__ == "__main__":
    run(main)
