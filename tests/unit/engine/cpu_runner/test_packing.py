"""Weights that a GGUF file kept as Q4_1 or Q8_0 come back as exactly those values; others are rounded and said to be."""

import gguf
import numpy as np
import pytest
import torch
from torch import Tensor

from services.engine.cpu_runner.native import Format, PackedMatrix
from services.engine.cpu_runner.packing import pack

OUTPUTS, INPUTS = 37, 96


def weight(kind: gguf.GGMLQuantizationType) -> Tensor:
    values = np.random.default_rng(3).standard_normal((OUTPUTS, INPUTS)).astype(np.float32)
    return torch.from_numpy(gguf.dequantize(gguf.quants.quantize(values, kind), kind).reshape(OUTPUTS, INPUTS))


def unpacked(packed: PackedMatrix, num_inputs: int = INPUTS) -> Tensor:
    """The values of the blocks, read in another way than the kernels do."""
    size = 320 if packed.format is Format.Q4 else 544
    blocks = packed.blocks.reshape(-1, num_inputs // 32, size)
    if packed.format is Format.Q4:
        nibbles = blocks[:, :, :256].reshape(*blocks.shape[:2], 4, 1, 16, 4)
        numbers = np.concatenate([nibbles & 15, nibbles >> 4], axis=3).astype(np.float32)
        numbers = numbers.reshape(*blocks.shape[:2], 8, 16, 4)
        scales = blocks[:, :, 256:].copy().view(np.float16).astype(np.float32)
        values = numbers * scales[:, :, None, :16, None] + scales[:, :, None, 16:, None]
    else:
        numbers = blocks[:, :, :512].reshape(*blocks.shape[:2], 8, 16, 4).astype(np.float32) - 128
        values = numbers * blocks[:, :, 512:].copy().view(np.float16).astype(np.float32)[:, :, None, :, None]
    return torch.from_numpy(values.transpose(0, 3, 1, 2, 4).reshape(-1, num_inputs))


@pytest.mark.parametrize(
    ("kind", "format"), [(gguf.GGMLQuantizationType.Q4_1, Format.Q4), (gguf.GGMLQuantizationType.Q8_0, Format.Q8)], ids=["Q4_1", "Q8_0"]
)
def test_pack_values_of_the_file_are_kept_bit_for_bit(kind: gguf.GGMLQuantizationType, format: Format) -> None:
    values = weight(kind)
    packed = pack(values.numpy())
    assert (packed.format, packed.exact) == (format, True)
    found = unpacked(packed)
    assert torch.equal(found[:OUTPUTS], values)
    assert not found[OUTPUTS:].any()


def test_pack_other_values_are_rounded_to_half_a_step_and_said_to_be() -> None:
    values = torch.from_numpy(np.random.default_rng(4).standard_normal((OUTPUTS, INPUTS)).astype(np.float32))
    packed = pack(values.numpy())
    assert (packed.format, packed.exact) == (Format.Q8, False)
    steps = values.view(OUTPUTS, -1, 32).abs().amax(dim=2, keepdim=True) / 127
    errors = (unpacked(packed)[:OUTPUTS] - values).view(OUTPUTS, -1, 32).abs() / steps
    assert 0.1 < errors.max() < 0.6


def test_pack_a_value_that_is_not_finite_stays_so_in_its_group() -> None:
    values = torch.full((16, INPUTS), 127.0)
    values[3, 40] = float("nan")
    found = unpacked(pack(values.numpy()))
    assert found[3, 32:64].isnan().all()
    assert torch.equal(found[2], values[2])
    assert torch.equal(found[3, :32], values[3, :32])


def test_pack_a_large_matrix_is_of_one_format_though_only_its_last_value_needs_it() -> None:
    values = np.tile(np.arange(16, dtype=np.float32), (2100, 48))
    assert pack(values).format is Format.Q4
    values[-1, -2] = 14.5
    packed = pack(values)
    assert (packed.format, packed.exact) == (Format.Q8, False)
    assert np.abs(unpacked(packed, 768).numpy()[:2100] - values).max() < 0.1
