"""A llama model of a few kilobytes as a real GGUF file, so that import and numerics are tested without a download."""

from dataclasses import dataclass, field
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
from tokenizers.pre_tokenizers import ByteLevel

Array = npt.NDArray[np.float32]

CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGES = ("Ġ t", "h e", "Ġt he", "i n")
TEMPLATE = "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\n' }}{% endfor %}"


@dataclass(slots=True)
class TinyGguf:
    """What goes into the file; change a field to make a file that must be refused."""

    num_layers: int = 2
    hidden_size: int = 64
    intermediate_size: int = 96
    num_heads: int = 4
    num_kv_heads: int = 2
    context_length: int = 512
    matrix_type: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32
    architecture: str = "llama"
    pre_tokenizer: str = "smollm"
    rope_scaling: str = ""
    add_bos: bool = False
    tied: bool = True
    extra_tensor: str = ""
    seed: int = 0
    weights: dict[str, Array] = field(default_factory=dict)
    """Filled by `write`: what was stored, before quantisation, in GGUF's names and order."""

    def write(self, path: Path) -> Path:
        writer = gguf.GGUFWriter(path, self.architecture)
        self._write_numbers(writer)
        self._write_tokenizer(writer)
        generator = np.random.default_rng(self.seed)
        for name, shape in self._shapes().items():
            self.weights[name] = self._values(generator, name, shape)
            self._write_tensor(writer, name, self.weights[name])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    def vocabulary(self) -> list[str]:
        return [*CONTROL_TOKENS, *sorted(ByteLevel.alphabet()), *(merge.replace(" ", "") for merge in MERGES)]

    def _write_numbers(self, writer: gguf.GGUFWriter) -> None:
        writer.add_block_count(self.num_layers)
        writer.add_context_length(self.context_length)
        writer.add_embedding_length(self.hidden_size)
        writer.add_feed_forward_length(self.intermediate_size)
        writer.add_head_count(self.num_heads)
        writer.add_head_count_kv(self.num_kv_heads)
        writer.add_rope_freq_base(10000.0)
        writer.add_layer_norm_rms_eps(1e-5)
        if self.rope_scaling:
            writer.add_string("llama.rope.scaling.type", self.rope_scaling)

    def _write_tokenizer(self, writer: gguf.GGUFWriter) -> None:
        tokens = self.vocabulary()
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(self.pre_tokenizer)
        writer.add_token_list(tokens)
        writer.add_token_types([3 if token in CONTROL_TOKENS else 1 for token in tokens])
        writer.add_token_merges(list(MERGES))
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_add_bos_token(self.add_bos)
        writer.add_chat_template(TEMPLATE)

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        hidden, inner, vocab = self.hidden_size, self.intermediate_size, len(self.vocabulary())
        kv = hidden // self.num_heads * self.num_kv_heads
        shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (vocab, hidden), "output_norm.weight": (hidden,)}
        if not self.tied:
            shapes["output.weight"] = (vocab, hidden)
        for index in range(self.num_layers):
            layer = {
                "attn_norm": (hidden,),
                "attn_q": (hidden, hidden),
                "attn_k": (kv, hidden),
                "attn_v": (kv, hidden),
                "attn_output": (hidden, hidden),
                "ffn_norm": (hidden,),
                "ffn_gate": (inner, hidden),
                "ffn_up": (inner, hidden),
                "ffn_down": (hidden, inner),
            }
            shapes |= {f"blk.{index}.{name}.weight": shape for name, shape in layer.items()}
        if self.extra_tensor:
            shapes[self.extra_tensor] = (hidden,)
        return shapes

    def _values(self, generator: np.random.Generator, name: str, shape: tuple[int, ...]) -> Array:
        if len(shape) == 1:
            return (1 + 0.1 * generator.standard_normal(shape)).astype(np.float32)
        scale = 1.0 if name == "token_embd.weight" else 2.0 / shape[-1] ** 0.5
        return (scale * generator.standard_normal(shape)).astype(np.float32)

    def _write_tensor(self, writer: gguf.GGUFWriter, name: str, values: Array) -> None:
        if values.ndim == 1 or self.matrix_type == gguf.GGMLQuantizationType.F32:
            writer.add_tensor(name, values)
            return
        writer.add_tensor(name, gguf.quants.quantize(values, self.matrix_type), raw_dtype=self.matrix_type)
