"""`python -m services.scheduler`."""

from services.kit.server import main
from services.scheduler.server import run

if __name__ == "__main__":
    main(run)
