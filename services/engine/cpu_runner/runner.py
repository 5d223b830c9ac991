"""The CPU `ModelRunner`: quantised products and paged attention in one native call per step."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from services.engine.cpu_runner.instruction_set import InstructionSet, NoKernelsError, best_for, cpu_features
from services.engine.cpu_runner.kernel_build import library
from services.engine.cpu_runner.native import (
    GROUP,
    HEAD_DIMS,
    LANES,
    MAX_HEADS_PER_KV_HEAD,
    Floats,
    Format,
    Integers,
    Kernels,
    KvFormat,
    Network,
    PackedWeights,
    Planes,
    Shape,
)
from services.engine.cpu_runner.weights import load_weights
from services.engine.llama import LlamaConfig, read_config
from services.engine.runner import ModelInfo, RunnerSettings, SamplingParams, SequenceSlice, StepOutput, slice_fault
from services.engine.sampling.prompt import num_logits, remaining
from services.engine.sampling.sampler import Sampler
from services.kit.errors import ConfigError
from services.kit.model_store import CONFIG, ModelStore, ModelVersion

_WARM_UP_TOKENS = 64
_PLANES = {"float32": Planes.TWO, "bfloat16": Planes.ONE}
"""What `dtype` means here: activations so fine that they hardly differ from float32, or as coarse as is fast."""
_KV_FORMATS = {"bfloat16": KvFormat.BFLOAT16, "int8": KvFormat.INT8}


class CpuRunner:
    """Serves one model version on this machine's CPU; see `ModelRunner` for the contract.

    Every row of a step goes through the same operations in the same order whatever else is in the step: answers do not depend on batch
    mates, on where a prompt was cut, or on whether a token was generated here or brought along by a resumed sequence.
    """

    def __init__(self, info: ModelInfo, network: Network, kv: NDArray[np.uint8]) -> None:
        self.info = info
        self._network: Network | None = network
        self._kv = kv
        self._stride = -(-info.vocab_size // LANES) * LANES
        self._logits = np.empty((0, self._stride), dtype=np.float32)
        self._sampler = Sampler()

    @classmethod
    def load(cls, settings: RunnerSettings, level: InstructionSet | None = None) -> "CpuRunner":
        """Load, verify and pack the model for `level` (default: the best of this CPU).

        NoKernelsError where the kernels cannot run or cannot run this model, ConfigError for settings that cannot serve, the model
        store's errors for a bad model.
        """
        if settings.device != "cpu":
            raise ConfigError(f"device {settings.device!r} is not supported by the cpu runner; use cpu, or the torch runner")
        if settings.block_size % LANES:
            raise NoKernelsError(f"block size {settings.block_size} is not a multiple of {LANES}", f"set a block size of {LANES}")
        chosen = level or best_for(cpu_features())
        version = ModelStore(settings.home).get(settings.model, settings.version)
        version.verify((CONFIG,))
        planes, kv_format = _numerics(settings, version)
        config = read_config(version)
        _check(config)
        kernels = _kernels(library(settings.home, chosen, settings.kernels))
        weights = load_weights(version, config)
        block_bytes = settings.block_size * config.num_kv_heads * kv_format.num_bytes(config.head_dim)
        kv = _empty((config.num_layers * 2, settings.num_blocks, block_bytes))
        network = kernels.open(_shape(config, settings, planes, kv_format), weights, kv)
        return cls(_info(version, settings, weights, _quality(weights, chosen, planes, kv_format)), network, kv)

    def step(self, slices: Sequence[SequenceSlice]) -> list[StepOutput]:
        """See `ModelRunner.step`."""
        if self._network is None:
            raise RuntimeError("the runner is closed")
        outputs = [StepOutput(part.sequence_id, None, slice_fault(part, self.info)) for part in slices]
        sound = [(part, output) for part, output in zip(slices, outputs, strict=True) if output.error is None]
        left = remaining(sound, lambda piece: self.forward([piece])[0])
        if left:
            logits, best = self.forward([part for part, _ in left])
            self._sampler.choose([(part, output) for part, output in left if part.samples], best, lambda at: logits[at])
        return outputs

    def forward(self, slices: Sequence[SequenceSlice]) -> tuple[Floats, list[int]]:
        """Write keys and values of sound `slices` and return logits [n, vocab] and greedy tokens of the last `num_logits` tokens of each.

        The logits are good until the next call; a token of -1 stands for logits that are not finite.
        """
        if self._network is None:
            raise RuntimeError("the runner is closed")
        tokens: list[int] = []
        tables: list[int] = []
        heads: list[tuple[int, int, int, int]] = []
        for part in slices:
            heads.append((part.start, len(part.token_ids), len(tables), num_logits(part)))
            tokens += part.token_ids
            tables += part.block_table
        count = sum(wanted for *_, wanted in heads)
        if len(self._logits) < count:
            self._logits = np.empty((max(count, 2 * len(self._logits)), self._stride), dtype=np.float32)  # Counts vary with every step.
        best = np.empty(count, dtype=np.int32)
        self._network.step(_integers(heads), _integers(tokens), _integers(tables), self._logits, best)
        return self._logits[:count, : self.info.vocab_size], best.tolist()

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """See `ModelRunner.copy_blocks`."""
        for source, target in pairs:
            self._kv[:, target] = self._kv[:, source]

    def warm_up(self) -> None:
        """See `ModelRunner.warm_up`: a prompt and one token after it, so that buffers exist and weights are in memory.

        All of the KV cache is written once: memory that the system gives out at first use, in pages of 2 MiB for every layer, would make
        steps of the first requests several times as long.
        """
        self._kv.fill(0)
        length = min(_WARM_UP_TOKENS, self.info.num_blocks * self.info.block_size, self.info.max_context_tokens) - 1
        table = list(range(-(-(length + 1) // self.info.block_size)))
        self.step([SequenceSlice(0, [0] * length, 0, table, SamplingParams(temperature=0.0), samples=True)])
        drawn = SamplingParams(temperature=1.0, top_p=0.9)
        self.step([SequenceSlice(0, [0], length, table, drawn, samples=True, output_position=1)])

    def profile(self) -> dict[str, float]:
        """Milliseconds by part of a step since the last call; the first call starts the count."""
        if self._network is None:
            raise RuntimeError("the runner is closed")
        return self._network.profile()

    def close(self) -> None:
        """See `ModelRunner.close`."""
        network, self._network = self._network, None
        if network is not None:
            network.close()


def _integers(values: Sequence[object]) -> Integers:
    return np.array(values, dtype=np.int32)


def _empty(shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Bytes that begin at a cache line; the system gives memory when they are first written (see `CpuRunner.warm_up`)."""
    count = math.prod(shape)
    raw = np.empty(count + 64, dtype=np.uint8)
    first = -raw.ctypes.data % 64
    return raw[first : first + count].reshape(shape)


def _kernels(path: Path) -> Kernels:
    try:
        return Kernels(path)
    except OSError as error:
        raise NoKernelsError(f"{path.name} cannot be loaded", f"remove {path} and start again") from error


def _check(config: LlamaConfig) -> None:
    """NoKernelsError for a network that the kernels have no shape for."""
    widths = (config.hidden_size, config.intermediate_size, config.num_heads * config.head_dim)
    if any(width % GROUP for width in widths):
        raise NoKernelsError(f"the model's widths {widths} are not multiples of {GROUP}", "serve this model with the torch runner")
    if config.head_dim not in HEAD_DIMS or config.num_heads % config.num_kv_heads:
        raise NoKernelsError(f"the model's head size {config.head_dim} has no kernel", "serve this model with the torch runner")
    if config.num_heads // config.num_kv_heads > MAX_HEADS_PER_KV_HEAD:
        raise NoKernelsError("too many heads share a KV head of the model", "serve this model with the torch runner")


def _numerics(settings: RunnerSettings, version: ModelVersion) -> tuple[Planes, KvFormat]:
    """What the operator says, else the model's card, else what hardly differs from float32."""
    card = version.numerics
    planes = _PLANES.get(settings.dtype) if settings.dtype else Planes(2 if card.activations == 15 else 1)
    if planes is None:
        raise ConfigError(f"dtype {settings.dtype!r} is unknown; known: {', '.join(sorted(_PLANES))}")
    kv_format = _KV_FORMATS.get(settings.kv_dtype or card.kv)
    if kv_format is None:
        raise ConfigError(f"kv_dtype {settings.kv_dtype!r} is unknown; known: {', '.join(sorted(_KV_FORMATS))}")
    return planes, kv_format


def _shape(config: LlamaConfig, settings: RunnerSettings, planes: Planes, kv_format: KvFormat) -> Shape:
    return Shape(
        num_layers=config.num_layers,
        hidden=config.hidden_size,
        inner=config.intermediate_size,
        heads=config.num_heads,
        kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        vocab=config.vocab_size,
        block_size=settings.block_size,
        num_blocks=settings.num_blocks,
        threads=settings.threads,
        planes=planes,
        kv_format=kv_format,
        norm_epsilon=config.rms_norm_eps,
    )


def _info(version: ModelVersion, settings: RunnerSettings, weights: PackedWeights, quality: str) -> ModelInfo:
    return ModelInfo(
        name=version.name,
        version=version.version,
        vocab_size=version.vocab_size,
        max_context_tokens=version.max_context_tokens,
        eos_token_ids=version.eos_token_ids,
        block_size=settings.block_size,
        num_blocks=settings.num_blocks,
        dtype=_dtype(weights),
        quality=quality,
        can_verify_drafts=True,
    )


def _dtype(weights: PackedWeights) -> str:
    formats = {matrix.format for matrix in weights.matrices()}
    return "+".join(format.name.lower() for format in Format if format in formats)


def _quality(weights: PackedWeights, level: InstructionSet, planes: Planes, kv_format: KvFormat) -> str:
    """The numeric path in words."""
    matrices = weights.matrices()
    rounded = sum(not matrix.exact for matrix in matrices)
    kept = "weights as stored" if not rounded else f"{rounded} of {len(matrices)} weight matrices rounded to int8 in groups of {GROUP}"
    fine = planes is Planes.TWO and kv_format is KvFormat.BFLOAT16 and not rounded
    answers = "rarely differ from float32" if fine else "differ from float32"
    kv = "bfloat16" if kv_format is KvFormat.BFLOAT16 else "int8 with a scale per token and head"
    return (
        f"native kernels ({level.display_name}) on cpu: {kept}; activations {planes.num_bits} bits per token in groups of {GROUP}, "
        f"KV cache {kv}; answers {answers}; bit-independent of batch mates"
    )
