"""Matrix products whose rows do not depend on how many rows are computed together."""

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

_PACKED_FOR_ROWS = 8
"""Row count oneDNN lays the weight out for; larger ones use the same layout."""


class Linear(Protocol):
    """Computes x @ weight.T for x [rows, in_features], giving [rows, out_features] in the type of x."""

    min_rows: int
    """Fewest rows for which a row of the result does not depend on the number of rows."""

    def __call__(self, x: Tensor) -> Tensor: ...


class PlainLinear:
    """Whatever torch picks for the device."""

    min_rows = 1

    def __init__(self, weight: Tensor) -> None:
        self._weight = weight

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self._weight)


class PackedLinear:
    """oneDNN with the weight laid out once at load time.

    Two to three times as fast as the plain product for the few rows of a decode step. Its inner loop runs over in_features in one order
    whatever the row count, except that a single row may take another kernel.
    """

    min_rows = 2

    def __init__(self, weight: Tensor) -> None:
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), _PACKED_FOR_ROWS)

    def __call__(self, x: Tensor) -> Tensor:
        result: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, None, "none", [], "")
        return result


def can_pack(device: torch.device) -> bool:
    """Whether this build of torch has the packed product for the device."""
    built_in: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return device.type == "cpu" and built_in and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")


def make_linear(weight: Tensor) -> Linear:
    """The best product for where `weight` [out_features, in_features] lies."""
    return PackedLinear(weight) if can_pack(weight.device) else PlainLinear(weight)


def rows_are_independent(linear: Linear, in_features: int, dtype: torch.dtype, device: torch.device) -> bool:
    """Measured, not assumed: rows computed beside 1, 3, 8 and 62 others come out bit for bit as beside 94 others."""
    generator = torch.Generator(device="cpu").manual_seed(0)
    x = torch.randn(96, in_features, generator=generator).to(device, dtype)
    whole = linear(x)
    return all(torch.equal(linear(x[:rows].clone()), whole[:rows]) for rows in (linear.min_rows, 2, 4, 9, 63))
