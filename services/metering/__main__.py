"""Starts metering."""

from services.kit.server import main
from services.metering import server

if __name__ == "__main__":
    main(server.main)
