"""The torch `ModelRunner`: one loaded llama model, its KV pool and the step function."""

import re
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from services.engine.llama import LlamaConfig, read_config
from services.engine.runner import ModelInfo, RunnerSettings, SamplingParams, SequenceSlice, StepOutput, slice_fault
from services.engine.sampling.prompt import remaining
from services.engine.sampling.sampler import Sampler, needs_row, rows_of
from services.engine.torch_runner.attention import DecodeAttention, StepAttention, TorchDecode, TorchPrefill
from services.engine.torch_runner.linear import can_pack, rows_are_independent
from services.engine.torch_runner.llama import Llama
from services.engine.torch_runner.paged_kv import PagedKv
from services.engine.torch_runner.step_batch import TILE, build_batch
from services.engine.torch_runner.weights import LlamaWeights, load_weights
from services.kit.errors import ConfigError
from services.kit.model_store import CONFIG, WEIGHTS, ModelStore, ModelVersion

_DEVICE = re.compile(r"cpu|cuda(:\d+)?")
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class TorchRunner:
    """Serves one model version on one device; see `ModelRunner` for the contract."""

    def __init__(self, info: ModelInfo, llama: Llama, device: torch.device, min_rows: int) -> None:
        self.info = info
        self._llama: Llama | None = llama
        self._device = device
        self._min_rows = min_rows
        self._sampler = Sampler()

    @classmethod
    def load(cls, settings: RunnerSettings) -> "TorchRunner":
        """Load, verify and lay out the model. ConfigError for settings that cannot serve, the model store's errors for a bad model."""
        settings = replace(settings, dtype=settings.dtype or "float32")
        device, dtype = _device(settings), _DTYPES.get(settings.dtype)
        if dtype is None:
            raise ConfigError(f"dtype {settings.dtype!r} is unknown; known: {', '.join(sorted(_DTYPES))}")
        if settings.kv_dtype not in ("", settings.dtype):
            raise ConfigError(f"kv_dtype {settings.kv_dtype!r} is not for the torch runner, which keeps keys and values in its dtype")
        if settings.block_size < 1 or TILE % settings.block_size:
            raise ConfigError(f"block size {settings.block_size} does not divide {TILE}")
        torch.set_num_threads(settings.threads)
        version = ModelStore(settings.home).get(settings.model, settings.version)
        version.verify((CONFIG, WEIGHTS))
        config = read_config(version)
        with torch.inference_mode():
            weights = load_weights(version, config, device, dtype)
            kv = PagedKv(config.num_layers, settings.num_blocks, settings.block_size, config.num_kv_heads, config.head_dim, dtype, device)
            prefill = TorchPrefill(kv, config, version.max_context_tokens, dtype, device)
            attention = StepAttention(_decode_attention(config, kv, dtype, device), prefill)
            llama = Llama(config, weights, kv, attention, version.max_context_tokens)
            quality = _quality(settings, config, weights, device, dtype)
        return cls(_info(version, settings, quality), llama, device, weights.head.min_rows)

    @torch.inference_mode()
    def step(self, slices: Sequence[SequenceSlice]) -> list[StepOutput]:
        """See `ModelRunner.step`."""
        if self._llama is None:
            raise RuntimeError("the runner is closed")
        outputs = [StepOutput(part.sequence_id, None, slice_fault(part, self.info)) for part in slices]
        sound = [(part, output) for part, output in zip(slices, outputs, strict=True) if output.error is None]
        llama = self._llama
        left = remaining(sound, lambda piece: self._forward(llama, [piece]).cpu().numpy())
        if left:
            logits = self._forward(llama, [part for part, _ in left])
            self._choose(logits, [(part, output) for part, output in left if part.samples])
        return outputs

    def _forward(self, llama: Llama, slices: list[SequenceSlice]) -> Tensor:
        return llama.forward(build_batch(slices, self.info.block_size, self._min_rows, self._device))

    @torch.inference_mode()
    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """See `ModelRunner.copy_blocks`."""
        if self._llama is not None and pairs:
            sources, targets = torch.tensor(pairs, dtype=torch.int64, device=self._device).unbind(1)
            self._llama.kv.copy(sources, targets)

    def warm_up(self) -> None:
        """See `ModelRunner.warm_up`: one prefill of two tiles, then decodes of one and of several sequences."""
        length = min(2 * TILE, self.info.num_blocks * self.info.block_size, self.info.max_context_tokens) - 1
        table = list(range(-(-(length + 1) // self.info.block_size)))
        greedy, drawn = SamplingParams(temperature=0.0), SamplingParams(temperature=1.0, top_p=0.9)
        self.step([SequenceSlice(0, [0] * length, 0, table, greedy, samples=True)])
        for count in (1, 2, 8):
            self.step(
                [
                    SequenceSlice(index, [0], length, table, drawn if index % 2 else greedy, samples=True, output_position=1)
                    for index in range(count)
                ]
            )

    def close(self) -> None:
        """See `ModelRunner.close`."""
        self._llama = None

    def _choose(self, logits: Tensor, sampled: list[tuple[SequenceSlice, StepOutput]]) -> None:
        """Greedy tokens are found where the logits are; rows that need more come to the host, where they are chosen from."""
        if not sampled:
            return
        best = torch.where(logits.isfinite().all(dim=1), logits.argmax(dim=1), -1).tolist()
        needed = [at for at, part in enumerate(rows_of(part for part, _ in sampled)) if needs_row(part)]
        rows = dict(zip(needed, logits[needed].cpu().numpy(), strict=True)) if needed else {}
        self._sampler.choose(sampled, best, rows.__getitem__)


def _device(settings: RunnerSettings) -> torch.device:
    if not _DEVICE.fullmatch(settings.device):
        raise ConfigError(f"device {settings.device!r} is not supported; use cpu, cuda or cuda:<index>")
    device = torch.device(settings.device)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"device {settings.device} was asked for and torch sees {torch.cuda.device_count()} CUDA devices")
    return device


def _decode_attention(config: LlamaConfig, kv: PagedKv, dtype: torch.dtype, device: torch.device) -> DecodeAttention:
    """The Triton kernel where there is a CUDA device for it, else torch."""
    if device.type == "cuda":
        from services.engine.kernels.triton.paged_decode import can_decode, paged_decode
        from services.engine.torch_runner.triton_decode import TritonDecode

        if can_decode(config.head_dim, config.num_heads, config.num_kv_heads):
            return TritonDecode(kv, paged_decode)
    return TorchDecode(kv, config, dtype)


def _info(version: ModelVersion, settings: RunnerSettings, quality: str) -> ModelInfo:
    return ModelInfo(
        name=version.name,
        version=version.version,
        vocab_size=version.vocab_size,
        max_context_tokens=version.max_context_tokens,
        eos_token_ids=version.eos_token_ids,
        block_size=settings.block_size,
        num_blocks=settings.num_blocks,
        dtype=settings.dtype,
        quality=quality,
    )


def _quality(settings: RunnerSettings, config: LlamaConfig, weights: LlamaWeights, device: torch.device, dtype: torch.dtype) -> str:
    """The numeric path in words, with what was measured on this machine."""
    layer, sizes = weights.layers[0], (config.hidden_size, config.num_heads * config.head_dim, config.intermediate_size)
    pairs = ((layer.qkv, sizes[0]), (layer.output, sizes[1]), (layer.gate_up, sizes[0]), (layer.down, sizes[2]), (weights.head, sizes[0]))
    independent = (
        settings.threads == 1
        and settings.block_size % 16 == 0
        and all(rows_are_independent(linear, size, dtype, device) for linear, size in pairs)
    )
    exact = "weights as stored" if dtype == torch.float32 else "weights rounded from float32, greedy output may differ from it"
    product = "packed oneDNN products" if can_pack(device) else "plain products"
    rows = "bit-independent of batch mates" if independent else "last bits may depend on batch mates"
    return f"{settings.dtype} on {device}: {exact}; {product}; {rows}"
