"""`python -m services.engine.cpu_runner`."""

import sys

from services.engine.cpu_runner.install import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
