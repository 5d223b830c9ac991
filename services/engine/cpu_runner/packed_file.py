"""Packed weights in a file that any number of replicas map read-only: a start reads it once and shares its pages.

Layout: a JSON header in one line that gives every array's place and the SHA-256 of all that follows, the SHA-256 of the header in one line,
zeros up to a page, the arrays at multiples of 64 bytes.
"""

import hashlib
import json
import mmap
import os
import tempfile
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.engine.cpu_runner.native import Format, PackedLayer, PackedMatrix, PackedWeights

LAYOUT = 2
"""Of the blocks (packing.py, kernels/cpu/quantised.h) and of the file: a change of either takes the next number."""
_PAGE = 4096
_LINE = 64
_MAX_HEADER_BYTES = 1 << 20


class PackedFileError(Exception):
    """The file is not whole or not what this code wrote."""


def write_packed(path: Path, weights: PackedWeights) -> None:
    """Write the file whole or not at all; OSError when there is no room or no right to."""
    entries: list[dict[str, Any]] = []
    digest, place = hashlib.sha256(), 0
    arrays = [(name, part.blocks if isinstance(part, PackedMatrix) else part, part) for name, part in _parts(weights)]
    for name, values, part in arrays:
        entry = {"name": name, "at": place, "shape": values.shape, "dtype": values.dtype.str}
        if isinstance(part, PackedMatrix):
            entry |= {"format": int(part.format), "exact": part.exact}
        entries.append(entry)
        for chunk in (values.data, _padding(values)):
            digest.update(chunk)
        place += values.nbytes + len(_padding(values))
    tied = weights.head is weights.embedding
    header = {"format": LAYOUT, "sha256": digest.hexdigest(), "bytes": place, "arrays": entries}
    header |= {"tied": tied, "layers": len(weights.layers)}
    text = json.dumps(header, separators=(",", ":")).encode() + b"\n"
    start = text + hashlib.sha256(text).hexdigest().encode() + b"\n"
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".packed-") as folder:
        with (Path(folder) / path.name).open("xb") as file:
            file.write(start + b"\0" * (-len(start) % _PAGE))
            for _, values, _ in arrays:
                file.write(values.data)
                file.write(_padding(values))
            file.flush()
            os.fsync(file.fileno())
        os.replace(file.name, path)


def read_packed(path: Path) -> PackedWeights:
    """Map the file and check every byte of it. PackedFileError when it is not whole, OSError when it cannot be read."""
    with path.open("rb") as file:
        text, check = file.readline(_MAX_HEADER_BYTES), file.readline(_LINE + 1)
        start = -(-file.tell() // _PAGE) * _PAGE
        if hashlib.sha256(text).hexdigest().encode() + b"\n" != check:
            raise PackedFileError("its header is damaged")
        header = json.loads(text)
        if header["format"] != LAYOUT or os.fstat(file.fileno()).st_size != start + header["bytes"]:
            raise PackedFileError("it is truncated or of another format")
        whole = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    content = memoryview(whole)[start:]
    if hashlib.sha256(content).hexdigest() != header["sha256"]:
        raise PackedFileError("it does not match its checksum")
    return _weights(header, content)


def _padding(values: NDArray[Any]) -> bytes:
    return b"\0" * (-values.nbytes % _LINE)


def _parts(weights: PackedWeights) -> Iterator[tuple[str, PackedMatrix | NDArray[Any]]]:
    for name in ("embedding", "norm", "head", "cosines", "sines"):
        if name != "head" or weights.head is not weights.embedding:
            yield name, getattr(weights, name)
    for index, layer in enumerate(weights.layers):
        for field in fields(PackedLayer):
            yield f"{index}.{field.name}", getattr(layer, field.name)


def _weights(header: dict[str, Any], content: memoryview) -> PackedWeights:
    parts = {entry["name"]: _part(entry, content) for entry in header["arrays"]}
    names = [field.name for field in fields(PackedLayer)]
    return PackedWeights(
        embedding=parts["embedding"],
        layers=tuple(PackedLayer(**{name: parts[f"{index}.{name}"] for name in names}) for index in range(header["layers"])),
        norm=parts["norm"],
        head=parts["embedding" if header["tied"] else "head"],
        cosines=parts["cosines"],
        sines=parts["sines"],
    )


def _part(entry: dict[str, Any], content: memoryview) -> Any:
    kind = np.dtype(entry["dtype"])
    count = int(np.prod(entry["shape"], dtype=np.int64))
    values = np.frombuffer(content, kind, count, entry["at"]).reshape(entry["shape"])
    return PackedMatrix(values, Format(entry["format"]), entry["exact"]) if "format" in entry else values
