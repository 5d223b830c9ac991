"""The build of the kernels follows the CPU's features."""

from pathlib import Path

import pytest

from services.engine.cpu_runner.instruction_set import InstructionSet, NoKernelsError, best_for, cpu_features

_AVX2 = {"fpu", "sse2", "avx", "avx2", "fma", "f16c"}
_AVX512 = _AVX2 | {"avx512f", "avx512bw", "avx512dq", "avx512vl"}


@pytest.mark.parametrize(
    ("features", "wanted"),
    [
        (_AVX512 | {"avx512_vnni", "avx512_bf16"}, InstructionSet.AVX512_BF16),
        (_AVX512 | {"avx512_vnni"}, InstructionSet.AVX512),
        (_AVX512 | {"avx512_bf16"}, InstructionSet.AVX2),
        (_AVX512, InstructionSet.AVX2),
        (_AVX2, InstructionSet.AVX2),
    ],
)
def test_best_for_takes_the_fastest_build_whose_needs_are_met(features: set[str], wanted: InstructionSet) -> None:
    assert best_for(features) is wanted


@pytest.mark.parametrize("features", [_AVX2 - {"f16c"}, {"sse2"}, set()])
def test_best_for_a_cpu_without_avx2_says_that_there_is_none(features: set[str]) -> None:
    with pytest.raises(NoKernelsError, match="no AVX2") as caught:
        best_for(features)
    assert "serve on a CPU" in caught.value.remedy


def test_compiler_flags_name_what_the_build_needs() -> None:
    assert set(InstructionSet.AVX2.compiler_flags) == {"-mavx2", "-mfma", "-mf16c"}
    assert "-mavx512vnni" in InstructionSet.AVX512.compiler_flags
    assert "-mavx512bf16" in InstructionSet.AVX512_BF16.compiler_flags


def test_cpu_features_of_a_system_that_lists_none_are_none(tmp_path: Path) -> None:
    assert cpu_features(tmp_path / "missing") == frozenset()
    listing = tmp_path / "cpuinfo"
    listing.write_text("processor\t: 0\nFeatures\t: fp asimd\n")
    assert cpu_features(listing) == frozenset()
