"""The kernels' C interface (kernels/cpu/step.cpp) as Python functions; a call gives the interpreter's lock away while it computes."""

from collections.abc import Callable
from ctypes import CDLL, POINTER, Structure, byref, c_float, c_int32, c_void_p
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

GROUP = 32
"""Inputs that share a scale."""
LANES = 16
"""Outputs of one block of weights; also the tokens of one group of keys."""
HEAD_DIMS = (16, 32, 64, 96, 128)
MAX_HEADS_PER_KV_HEAD = 64
PARTS = ("round", "qkv", "attention", "output", "gate_up", "down", "head", "wait")
"""Of a step: `Part` of profile.h. To round is all that is done row by row; to wait, for the other threads."""


Floats = NDArray[np.float32]
Integers = NDArray[np.int32]


class Format(IntEnum):
    """How a matrix is kept: the values of GGUF's Q4_1 or of Q8_0."""

    Q4 = 0
    Q8 = 1


class Planes(IntEnum):
    """Bytes per activation: 8 bits, or 15 bits in two bytes."""

    ONE = 1
    TWO = 2

    @property
    def num_bits(self) -> int:
        """Of one activation, the sign included."""
        return 8 if self is Planes.ONE else 15


class KvFormat(IntEnum):
    """How keys and values are kept: in two bytes, or in one with a float per token and head."""

    BFLOAT16 = 0
    INT8 = 1

    def num_bytes(self, head_dim: int) -> int:
        """Of the keys of one token and head; values take as much."""
        return 2 * head_dim if self is KvFormat.BFLOAT16 else head_dim + 4


class Shape(Structure):
    """`Shape` of step.cpp."""

    _fields_ = [
        *((name, c_int32) for name in ("num_layers", "hidden", "inner", "heads", "kv_heads", "head_dim", "vocab")),
        *((name, c_int32) for name in ("block_size", "num_blocks", "threads", "planes", "kv_format")),
        ("norm_epsilon", c_float),
    ]


class _Matrix(Structure):
    _fields_ = [("blocks", c_void_p), ("format", c_int32)]


class _LayerWeights(Structure):
    _fields_ = [
        ("attention_norm", c_void_p),
        ("qkv", _Matrix),
        ("output", _Matrix),
        ("mlp_norm", c_void_p),
        ("gate_up", _Matrix),
        ("down", _Matrix),
    ]


class _Weights(Structure):
    _fields_ = [
        ("embedding", _Matrix),
        ("layers", POINTER(_LayerWeights)),
        ("norm", c_void_p),
        ("head", _Matrix),
        ("cosines", c_void_p),
        ("sines", c_void_p),
    ]


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """Weights in blocks."""

    blocks: NDArray[np.uint8]
    format: Format
    exact: bool
    """Whether no value changed when it was packed."""


@dataclass(frozen=True, slots=True)
class PackedLayer:
    """One layer; q, k, v are one matrix, gate and up one in turns of 16 outputs."""

    attention_norm: Floats
    qkv: PackedMatrix
    output: PackedMatrix
    mlp_norm: Floats
    gate_up: PackedMatrix
    down: PackedMatrix


@dataclass(frozen=True, slots=True)
class PackedWeights:
    """A whole network."""

    embedding: PackedMatrix
    layers: tuple[PackedLayer, ...]
    norm: Floats
    head: PackedMatrix
    cosines: Floats
    """[positions, head_dim / 2] float32; `sines` alike."""
    sines: Floats

    def matrices(self) -> list[PackedMatrix]:
        """All of them, each once."""
        return [
            *(matrix for layer in self.layers for matrix in (layer.qkv, layer.output, layer.gate_up, layer.down)),
            self.embedding,
            *([] if self.head is self.embedding else [self.head]),
        ]


class Kernels:
    """One loaded library."""

    def __init__(self, path: Path) -> None:
        """OSError when the file cannot be loaded."""
        library = CDLL(str(path))
        self._open = _function(library, "inferway_open", c_void_p, c_void_p, c_void_p, c_void_p)
        self._step = _function(library, "inferway_step", c_int32, c_void_p, c_void_p, c_int32, c_void_p, c_void_p, c_void_p, c_void_p)
        self._profile = _function(library, "inferway_profile", None, c_void_p, c_void_p)
        self._close = _function(library, "inferway_close", None, c_void_p)

    def open(self, shape: Shape, weights: PackedWeights, kv: NDArray[np.uint8]) -> "Network":
        """A network whose cache is `kv` (`KvFormat`, uint8). MemoryError when there is no memory or there are no threads for it."""
        layers = (_LayerWeights * len(weights.layers))(
            *(
                _LayerWeights(
                    _address(layer.attention_norm),
                    _matrix(layer.qkv),
                    _matrix(layer.output),
                    _address(layer.mlp_norm),
                    _matrix(layer.gate_up),
                    _matrix(layer.down),
                )
                for layer in weights.layers
            )
        )
        whole = _Weights(
            _matrix(weights.embedding),
            layers,
            _address(weights.norm),
            _matrix(weights.head),
            _address(weights.cosines),
            _address(weights.sines),
        )
        handle = self._open(byref(shape), byref(whole), _address(kv))
        if not handle:
            raise MemoryError("no memory or no threads for the CPU kernels")
        return Network(self._step, self._profile, self._close, handle, (weights, kv))


class Network:
    """One network of the kernels; keeps alive what it reads."""

    def __init__(
        self, step: Callable[..., int], profile: Callable[..., None], close: Callable[..., None], handle: int, owned: tuple[object, ...]
    ) -> None:
        self._step = step
        self._profile = profile
        self._close = close
        self._handle: int | None = handle
        self._owned: tuple[object, ...] = owned

    def step(self, slices: Integers, tokens: Integers, tables: Integers, logits: Floats, best: Integers) -> None:
        """Compute a step; all arrays int32 but `logits`. MemoryError when the batch does not fit.

        `slices` [n, 4]: start, number of tokens, where its block table begins in `tables`, how many of its last tokens want logits.
        `logits` [tokens that want them, vocabulary in whole blocks of 16] and `best` [tokens that want them] are written in order; best is
        -1 where logits are not finite.
        """
        found = (_address(logits), _address(best))
        if self._step(self._handle, _address(slices), len(slices), _address(tokens), _address(tables), *found):
            raise MemoryError("no memory for the batch")

    def profile(self) -> dict[str, float]:
        """Milliseconds of the calling thread by part of a step (`PARTS`) since the last call; the first call starts the count."""
        taken = np.zeros(len(PARTS), dtype=np.int64)
        self._profile(self._handle, _address(taken))
        return {part: nanoseconds / 1e6 for part, nanoseconds in zip(PARTS, taken.tolist(), strict=True)}

    def close(self) -> None:
        """Give back threads and memory. Safe to call twice."""
        handle, self._handle, self._owned = self._handle, None, ()
        if handle is not None:
            self._close(handle)


def _matrix(packed: PackedMatrix) -> _Matrix:
    return _Matrix(_address(packed.blocks), packed.format)


def _address(values: NDArray[Any]) -> int:
    return values.ctypes.data


def _function(library: CDLL, name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    function = getattr(library, name)
    function.restype, function.argtypes = result, arguments
    return function  # type: ignore[no-any-return]
