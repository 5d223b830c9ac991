"""Loads a version folder's llama weights as the blocks that the CPU kernels read: packed once, then mapped from a file."""

import logging
from collections.abc import Callable

import numpy as np

from services.engine.cpu_runner.native import LANES, Floats, PackedLayer, PackedWeights
from services.engine.cpu_runner.packed_file import LAYOUT, PackedFileError, read_packed, write_packed
from services.engine.cpu_runner.packing import pack
from services.engine.llama import LlamaConfig, open_weights
from services.kit.model_store import WEIGHTS, ModelVersion

logger = logging.getLogger(__name__)
Read = Callable[..., Floats]


def load_weights(version: ModelVersion, config: LlamaConfig) -> PackedWeights:
    """The packed weights of `version`, the same for every build of the kernels.

    They are kept in the version folder, so that replicas start at once and share their pages. A file that is truncated or altered
    is made anew from the weights, which are verified then. Where the folder cannot be written, they stay in memory.
    ModelCorruptError when the weights are not those of the manifest, or one is missing or misshapen.
    """
    path = version.path / f"packed-{LAYOUT}.bin"
    try:
        return read_packed(path)
    except FileNotFoundError:
        pass
    except (PackedFileError, OSError) as error:
        logger.warning("%s is packed anew: %s", path.name, error)
    version.verify((WEIGHTS,))
    weights = pack_weights(version, config)
    try:
        write_packed(path, weights)
        for old in version.path.glob("packed-*.bin"):
            if old != path:
                old.unlink(missing_ok=True)
        return read_packed(path)
    except (PackedFileError, OSError) as error:
        logger.warning("the packed weights are not kept: %s", error)
        return weights


def pack_weights(version: ModelVersion, config: LlamaConfig) -> PackedWeights:
    """Read, check and pack the weights of a verified `version`, one after the other."""
    with open_weights(version, "numpy") as tensor:

        def read(name: str, *shape: int) -> Floats:
            return np.ascontiguousarray(tensor(name, *shape), dtype=np.float32)

        size = (config.vocab_size, config.hidden_size)
        embedding = pack(read("model.embed_tokens.weight", *size))
        cosines, sines = _rotations(config, version.max_context_tokens)
        return PackedWeights(
            embedding=embedding,
            layers=tuple(_layer(config, index, read) for index in range(config.num_layers)),
            norm=read("model.norm.weight", config.hidden_size),
            head=embedding if config.tied else pack(read("lm_head.weight", *size)),
            cosines=cosines,
            sines=sines,
        )


def _layer(config: LlamaConfig, index: int, read: Read) -> PackedLayer:
    prefix, hidden, inner = f"model.layers.{index}.", config.hidden_size, config.intermediate_size
    attention, rows, kv_rows = prefix + "self_attn.", config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    query = read(attention + "q_proj.weight", rows, hidden)
    key, value = (read(f"{attention}{name}_proj.weight", kv_rows, hidden) for name in "kv")
    gate, up = (read(f"{prefix}mlp.{name}_proj.weight", inner, hidden) for name in ("gate", "up"))
    turns = np.stack([gate.reshape(-1, LANES, hidden), up.reshape(-1, LANES, hidden)], axis=1).reshape(-1, hidden)
    return PackedLayer(
        attention_norm=read(prefix + "input_layernorm.weight", hidden),
        qkv=pack(np.concatenate([query, key, value])),
        output=pack(read(attention + "o_proj.weight", hidden, rows)),
        mlp_norm=read(prefix + "post_attention_layernorm.weight", hidden),
        gate_up=pack(turns),
        down=pack(read(prefix + "mlp.down_proj.weight", hidden, inner)),
    )


def _rotations(config: LlamaConfig, max_tokens: int) -> tuple[Floats, Floats]:
    exponents = np.arange(0, config.head_dim, 2) / config.head_dim
    frequencies = (1.0 / config.rope_theta**exponents).astype(np.float32)
    angles = (np.arange(max_tokens, dtype=np.float32)[:, None] * frequencies).astype(np.float64)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
