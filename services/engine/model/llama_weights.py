"""Names and order of llama weights as the safetensors world has them, made from a GGUF file."""

import re

from services.engine.model.errors import ModelImportError
from services.engine.model.gguf_source import FloatArray, GgufSource, LlamaShape

_TOP = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_LAYER_NAME = re.compile(r"blk\.(\d+)\.(\w+)\.weight")


def weight_names(source: GgufSource, shape: LlamaShape) -> dict[str, str]:
    """Published name -> GGUF name of every weight. ModelImportError for a missing tensor or one that would be dropped in silence."""
    names: dict[str, str] = {}
    for name in source.tensor_names():
        found = _LAYER_NAME.fullmatch(name)
        if name in _TOP:
            names[_TOP[name]] = name
        elif found and found[2] in _LAYER and int(found[1]) < shape.num_layers:
            names[f"model.layers.{int(found[1])}.{_LAYER[found[2]]}.weight"] = name
        else:
            raise ModelImportError(f"tensor {name} has no place in a llama network")
    expected = shape.num_layers * len(_LAYER) + 2
    if len(names) - ("lm_head.weight" in names) != expected:
        raise ModelImportError(f"the file holds {len(names)} of {expected} weights")
    return names


def weight(source: GgufSource, shape: LlamaShape, published_name: str, gguf_name: str) -> FloatArray:
    """One weight in float32 and in the published row order."""
    values = source.tensor(gguf_name)
    if published_name.endswith("q_proj.weight"):
        return split_halves(values, shape.num_heads)
    if published_name.endswith("k_proj.weight"):
        return split_halves(values, shape.num_kv_heads)
    return values


def split_halves(values: FloatArray, num_heads: int) -> FloatArray:
    """Undo GGUF's row order of q and k.

    GGUF keeps the two rows that one rotary frequency turns next to each other (2i, 2i + 1); the published order keeps them half a head
    apart (i, i + head_dim / 2), per head.
    """
    pairs = values.reshape(num_heads, -1, 2, values.shape[-1])
    halves: FloatArray = pairs.swapaxes(1, 2).reshape(values.shape).copy()
    return halves
