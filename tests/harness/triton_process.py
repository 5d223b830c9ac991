"""Runs Triton in a process of its own: it decides once, when it is imported, whether it compiles or interprets."""

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor


@contextmanager
def triton_process(cache: Path, interpret: bool) -> Iterator[ProcessPoolExecutor]:
    """An executor of one spawned process; `cache` keeps compiled kernels."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _settle, (os.fspath(cache), interpret)) as executor:
        yield executor


def decode(queries: Tensor, keys: Tensor, values: Tensor, blocks: Tensor, lengths: Tensor, max_length: int) -> Tensor:
    """`paged_decode` on the tensors as they are."""
    from services.engine.kernels.triton.paged_decode import paged_decode

    return paged_decode(queries, keys, values, blocks, lengths, max_length)


def compiled_sizes(kind: str, capability: int) -> list[int]:
    """Bytes of machine code of the kernels for a pool of element type `kind` on a CUDA device of `capability`."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    from services.engine.kernels.triton import paged_decode

    sizes = {"GROUP": 3, "ROWS": 16, "HEAD_DIM": 64, "BLOCK_SIZE": 16, "SPLIT": 256, "TILE": 32}
    found = []
    for function in (paged_decode._split_kernel, paged_decode._join_kernel):
        signature = {name: _type(name, kind, sizes) for name in function.arg_names}
        constants = {name: size for name, size in sizes.items() if name in signature}
        source = ASTSource(fn=function, signature=signature, constexprs=constants)
        found.append(len(compile(source, target=GPUTarget("cuda", capability, 32)).asm["cubin"]))
    return found


def _type(name: str, kind: str, constants: dict[str, int]) -> str:
    if name in constants:
        return "constexpr"
    if name in ("queries", "keys", "values", "out"):
        return f"*{kind}"
    if name in ("blocks", "lengths"):
        return "*i64"
    if name in ("partial", "peaks", "sums"):
        return "*fp32"
    return "fp32" if name == "scale" else "i32"


def _settle(cache: str, interpret: bool) -> None:
    os.environ |= {"TRITON_CACHE_DIR": cache, "TRITON_DEFAULT_FP_FUSION": "1", "TRITON_INTERPRET": "1" if interpret else "0"}
    torch.set_num_threads(1)
