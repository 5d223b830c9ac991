"""What this machine has to offer to replicas, found without loading torch."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from services.engine.node.config import NodeConfig

DEFAULT_CPU_REPLICAS = 4
_NVIDIA_SMI_TIMEOUT_S = 10.0
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Device:
    """One device; `memory_bytes` is 0 for a CPU, or when it is unknown."""

    kind: str
    index: int
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Machine:
    """The node as it is registered, apart from its store and its slots."""

    node_id: str
    host: str
    devices: tuple[Device, ...]
    memory_bytes: int
    failure_domain: str
    max_num_replicas: int


def inspect(config: NodeConfig, dev: Path = Path("/dev")) -> Machine:
    """Looks at the machine once; `dev` is where device files are. May wait some seconds for the NVIDIA driver."""
    cuda = _cuda_devices(dev)
    return Machine(
        node_id=config.node_id,
        host=config.reachable_host,
        devices=(*cuda, Device("cpu", 0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        failure_domain=config.failure_domain,
        max_num_replicas=config.max_num_replicas or len(cuda) or DEFAULT_CPU_REPLICAS,
    )


def _cuda_devices(dev: Path) -> tuple[Device, ...]:
    found = sorted(int(match[1]) for path in dev.glob("nvidia*") if (match := re.fullmatch(r"nvidia(\d+)", path.name)))
    memory = _cuda_memory() if found else {}
    return tuple(Device("cuda", index, memory.get(index, 0)) for index in _renumber(found, memory))


def _renumber(minors: list[int], memory: dict[int, int]) -> list[int]:
    """CUDA numbers the visible devices from 0 on, which the driver knows better than the names of device files do."""
    return sorted(memory) if memory else list(range(len(minors)))


def _cuda_memory() -> dict[int, int]:
    """Bytes by device index as the driver's own tool tells, empty without it."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return {}
    query = [tool, "--query-gpu=index,memory.total", "--format=csv,noheader,nounits"]
    try:
        output = subprocess.run(query, capture_output=True, text=True, timeout=_NVIDIA_SMI_TIMEOUT_S, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    lines = re.findall(r"^(\d+), *(\d+)$", output, re.MULTILINE)
    return {int(index): int(mebibytes) * _MIB for index, mebibytes in lines}
