"""Packed weights are made once, mapped ever after, and never served when they are not what was written."""

import logging
from pathlib import Path

import gguf
import numpy as np
import pytest

from services.engine.cpu_runner.instruction_set import InstructionSet
from services.engine.cpu_runner.packed_file import PackedFileError, read_packed
from services.engine.cpu_runner.runner import CpuRunner
from services.engine.model.importer import import_model
from services.engine.runner import RunnerSettings, SamplingParams, SequenceSlice
from services.kit.model_store import WEIGHTS, ModelCorruptError, ModelVersion
from tests.harness.cpu_kernels import LEVELS, share_kernels
from tests.harness.tiny_gguf import TinyGguf

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(params=[True, False], ids=["tied", "own head"])
def version(request: pytest.FixtureRequest, tmp_path: Path) -> ModelVersion:
    tiny = TinyGguf(matrix_type=gguf.GGMLQuantizationType.Q4_1, tied=request.param)
    return import_model(tiny.write(tmp_path / "tiny.gguf"), "tiny", share_kernels(tmp_path))


def logits(version: ModelVersion, level: InstructionSet | None = None) -> np.ndarray:
    """Of a prompt, by a runner that starts now."""
    runner = CpuRunner.load(RunnerSettings("tiny", home=version.path.parents[2], num_blocks=4), level)
    found, _ = runner.forward([SequenceSlice(0, [5, 9, 77], 0, [1], SamplingParams(temperature=0), samples=True)])
    runner.close()
    return found[0].copy()


def packed(version: ModelVersion) -> Path:
    (found,) = version.path.glob("packed-*.bin")
    return found


def test_second_start_maps_the_file_of_the_first_and_computes_the_same(version: ModelVersion) -> None:
    wanted = logits(version)
    written = packed(version).stat()
    # The weights are not needed any more: their bytes may be anything, and nobody reads them.
    version.file(WEIGHTS).write_bytes(b"\0" * version.files[WEIGHTS].num_bytes)
    assert np.array_equal(logits(version), wanted)
    assert packed(version).stat().st_ino == written.st_ino
    assert sorted(path.name for path in version.path.iterdir() if path.name.startswith(".packed")) == []


@pytest.mark.parametrize("at", [0.0, 0.01, 0.5, 0.999])
def test_altered_file_is_packed_anew(version: ModelVersion, at: float, caplog: pytest.LogCaptureFixture) -> None:
    wanted = logits(version)
    path = packed(version)
    content = bytearray(path.read_bytes())
    place = int(at * len(content))
    content[place] ^= 1
    path.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert np.array_equal(logits(version), wanted)
    if place < 1000 or place >= 4096:
        assert "is packed anew" in caplog.text
        assert path.read_bytes() != content
    read_packed(path)


@pytest.mark.parametrize("keep", [0, 10, 5000, -1])
def test_truncated_file_is_refused_and_packed_anew(version: ModelVersion, keep: int) -> None:
    wanted = logits(version)
    path = packed(version)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(PackedFileError):
        read_packed(path)
    assert np.array_equal(logits(version), wanted)
    read_packed(path)


def test_altered_weights_are_refused_where_nothing_is_packed_yet(version: ModelVersion) -> None:
    content = bytearray(version.file(WEIGHTS).read_bytes())
    content[-1] ^= 1
    version.file(WEIGHTS).write_bytes(content)
    with pytest.raises(ModelCorruptError, match="does not match its checksum"):
        logits(version)


def test_file_that_cannot_be_written_leaves_the_weights_in_memory(version: ModelVersion, caplog: pytest.LogCaptureFixture) -> None:
    wanted = logits(version)
    path = packed(version)
    path.unlink()
    path.mkdir()
    (path / "in the way").touch()
    with caplog.at_level(logging.WARNING):
        assert np.array_equal(logits(version), wanted)
    assert "are not kept" in caplog.text


def test_file_of_another_layout_makes_room(version: ModelVersion) -> None:
    wanted = logits(version)
    path = packed(version)
    old = path.rename(path.with_name("packed-1.bin"))
    assert np.array_equal(logits(version), wanted)
    assert path.exists()
    assert not old.exists()


def test_file_serves_every_build_of_the_kernels(version: ModelVersion) -> None:
    wanted = logits(version)
    written = packed(version).stat().st_mtime_ns
    for level in LEVELS:
        assert np.array_equal(logits(version, level), wanted)
    assert packed(version).stat().st_mtime_ns == written
