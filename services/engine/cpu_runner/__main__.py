"""Builds the kernels for this CPU ahead of the first start: `INFERWAY_HOME=... python -m services.engine.cpu_runner`."""

import os
import sys
from pathlib import Path

from services.engine.cpu_runner.instruction_set import NoKernelsError, best_for, cpu_features
from services.engine.cpu_runner.kernel_build import library

if __name__ == "__main__":
    try:
        print(library(Path(os.environ.get("INFERWAY_HOME", ".inferway")), best_for(cpu_features())))
    except NoKernelsError as error:
        sys.exit(f"{error}; to mend: {error.remedy}")
