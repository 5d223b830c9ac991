"""Quantised blocks are decoded as the format defines them, checked against a decoder written from its definition."""

from pathlib import Path

import gguf
import numpy as np
import pytest

from services.engine.model.errors import ModelImportError
from services.engine.model.gguf_source import GgufSource


def write(path: Path, raw: np.ndarray, kind: gguf.GGMLQuantizationType) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("w", raw, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def q6_k(block: bytes) -> list[float]:
    """One block of 256 weights: low nibbles, high pairs of bits, sixteen signed scales, one half-precision scale."""
    low, high, scales = block[:128], block[128:192], np.frombuffer(block[192:208], dtype=np.int8)
    factor = float(np.frombuffer(block[208:210], dtype=np.float16)[0])
    values = [0.0] * 256
    for index in range(256):
        half, within = divmod(index, 128)
        quarter, lane = divmod(within, 32)
        nibble = low[half * 64 + lane + 32 * (quarter % 2)] >> (4 * (quarter // 2)) & 15
        pair = high[half * 32 + lane] >> (2 * quarter) & 3
        values[index] = factor * int(scales[index // 16]) * ((pair << 4 | nibble) - 32)
    return values


def test_tensor_q6_k_matches_the_definition(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    blocks = generator.integers(0, 256, (3, 210), dtype=np.uint8)
    blocks[:, 208:] = generator.uniform(-0.1, 0.1, 3).astype(np.float16).view(np.uint8).reshape(3, 2)
    source = GgufSource(write(tmp_path / "w.gguf", blocks, gguf.GGMLQuantizationType.Q6_K))
    assert source.tensor("w").shape == source.tensor_shape("w") == (3, 256)
    np.testing.assert_allclose(source.tensor("w"), [q6_k(block.tobytes()) for block in blocks], rtol=1e-6)


def test_tensor_q4_1_matches_the_definition(tmp_path: Path) -> None:
    generator = np.random.default_rng(2)
    blocks = generator.integers(0, 256, (5, 20), dtype=np.uint8)
    scales = generator.uniform(-1, 1, (5, 2)).astype(np.float16)
    blocks[:, :4] = scales.view(np.uint8)
    source = GgufSource(write(tmp_path / "w.gguf", blocks, gguf.GGMLQuantizationType.Q4_1))
    nibbles = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1)
    expected = scales[:, :1].astype(np.float64) * nibbles + scales[:, 1:].astype(np.float64)
    np.testing.assert_allclose(source.tensor("w"), expected, rtol=1e-6, atol=1e-6)


def test_tensor_of_an_unsupported_type_is_named(tmp_path: Path) -> None:
    source = GgufSource(write(tmp_path / "w.gguf", np.zeros((1, 84), dtype=np.uint8), gguf.GGMLQuantizationType.Q2_K))
    with pytest.raises(ModelImportError, match="w is of type Q2_K"):
        source.tensor("w")
    with pytest.raises(ModelImportError, match="no tensor v"):
        source.tensor("v")
