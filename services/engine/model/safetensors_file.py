"""Writes a safetensors file tensor by tensor, so that no more than one weight is in memory.

Format: 8-byte little-endian header length, JSON header padded with spaces to 8 bytes, then the tensors back to back.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from services.kit.model_store import StoredFile


def write_float32(
    path: Path,
    shapes: Mapping[str, tuple[int, ...]],
    tensor: Callable[[str], npt.NDArray[np.float32]],
    written: Callable[[int, int], None],
) -> StoredFile:
    """Write the named tensors in the order of `shapes`; `written(done, total)` hears of every tensor in bytes. OSError when it cannot."""
    header, total = _header(shapes)
    digest = hashlib.sha256()
    done = 0
    with path.open("xb") as file:
        for chunk in (len(header).to_bytes(8, "little"), header):
            file.write(chunk)
            digest.update(chunk)
        for name, shape in shapes.items():
            values = np.ascontiguousarray(tensor(name), dtype="<f4")
            if values.shape != shape:
                raise ValueError(f"{name}: shape {values.shape} instead of {shape}")
            file.write(values.data)
            digest.update(values.data)
            done += values.nbytes
            written(done, total)
    return StoredFile(digest.hexdigest(), 8 + len(header) + total)


def _header(shapes: Mapping[str, tuple[int, ...]]) -> tuple[bytes, int]:
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes.items():
        begin, end = end, end + 4 * int(np.prod(shape, dtype=np.int64))
        entries[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    return text + b" " * (-len(text) % 8), end
