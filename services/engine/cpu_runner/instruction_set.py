"""Which of the builds of the kernels suits a CPU."""

import platform
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")


class NoKernelsError(Exception):
    """The kernels cannot run here. `remedy` is what an operator can do about it."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.remedy = remedy


class InstructionSet(StrEnum):
    """One build of the kernels, fastest first."""

    AVX512_BF16 = "avx512bf16"
    AVX512 = "avx512"
    AVX2 = "avx2"

    @property
    def needs(self) -> frozenset[str]:
        """CPU features, by the names that Linux gives them."""
        return _NEEDS[self]

    @property
    def compiler_flags(self) -> tuple[str, ...]:
        """What makes the compiler use the features."""
        return tuple(f"-m{name.replace('_', '')}" for name in sorted(self.needs))

    @property
    def display_name(self) -> str:
        """For people."""
        return _NAMES[self]


_AVX512 = frozenset({"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"})
_NEEDS = {
    InstructionSet.AVX512_BF16: _AVX512 | {"avx512_bf16"},
    InstructionSet.AVX512: _AVX512,
    InstructionSet.AVX2: frozenset({"avx2", "fma", "f16c"}),
}


_NAMES = {
    InstructionSet.AVX512_BF16: "AVX-512 VNNI BF16",
    InstructionSet.AVX512: "AVX-512 VNNI",
    InstructionSet.AVX2: "AVX2",
}


def best_for(features: Iterable[str]) -> InstructionSet:
    """The fastest build that a CPU with `features` runs; NoKernelsError where there is none."""
    found = frozenset(features)
    for level in InstructionSet:
        if level.needs <= found:
            return level
    raise NoKernelsError("this CPU has no AVX2 with FMA and F16C", "serve on a CPU that has them")


def cpu_features(cpuinfo: Path = _CPUINFO) -> frozenset[str]:
    """Features of this machine's first CPU; none where the system does not list them."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return frozenset()
    listed = (line.partition(":")[2].split() for line in lines if line.startswith("flags"))
    return frozenset(next(listed, [])) if platform.machine() in ("x86_64", "AMD64") else frozenset()
