"""A replica that serves by the native kernels starts fast and small because it never loads torch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from services.engine.cpu_runner.instruction_set import InstructionSet
from services.engine.model.importer import import_model
from tests.harness.cpu_kernels import LEVELS, kernel_library, share_kernels
from tests.harness.tiny_gguf import TinyGguf

_SERVE = """
import sys
from pathlib import Path
import services.engine.server
from services.engine.runner import RunnerSettings
from services.engine.runner_registry import make_runner

runner = make_runner("auto", RunnerSettings("tiny", home=Path(sys.argv[1]), num_blocks=8))
runner.warm_up()
mapped = {line.split("/")[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line}
print(runner.info.quality)
print(sorted(name for name in mapped if name.startswith(("libtorch", "libc10", "libcuda"))))
print(sorted(name for name in ("torch", "triton", "transformers") if name in sys.modules))
"""


@pytest.mark.timeout(300)  # It may have to compile, on a machine that does other things.
@pytest.mark.parametrize("level", LEVELS[:1])
def test_replica_on_the_native_kernels_loads_no_torch(level: InstructionSet, tmp_path: Path) -> None:
    kernel_library(level)
    import_model(TinyGguf().write(tmp_path / "tiny.gguf"), "tiny", share_kernels(tmp_path))
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", _SERVE, str(tmp_path)], env=environ, capture_output=True, text=True, timeout=50, check=True
    )
    quality, libraries, modules = done.stdout.splitlines()
    assert "native kernels" in quality
    assert (libraries, modules) == ("[]", "[]")
