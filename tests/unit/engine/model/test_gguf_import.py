"""A GGUF file becomes a version folder with the published names, order and values, or is refused with a reason."""

import json
import threading
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from services.engine.model.errors import ModelImportError
from services.engine.model.importer import ImportOptions, import_model
from services.kit.model_store import CONFIG, MANIFEST, TOKENIZER, WEIGHTS, ModelNotFoundError, ModelStore
from tests.harness.tiny_gguf import Array, TinyGguf

_TYPES = gguf.GGMLQuantizationType


def gguf_order(published: Array, heads: int) -> Array:
    """What the GGUF converter does to q and k: the two halves of every head are interleaved."""
    return published.reshape(heads, 2, -1, published.shape[1]).swapaxes(1, 2).reshape(published.shape)


def test_import_float32_has_published_names_and_rotary_order(tmp_path: Path) -> None:
    tiny = TinyGguf()
    version = import_model(tiny.write(tmp_path / "tiny.gguf"), "tiny", tmp_path)
    weights = load_file(version.file(WEIGHTS))
    assert len(weights) == len(tiny.weights)
    np.testing.assert_array_equal(weights["model.embed_tokens.weight"], tiny.weights["token_embd.weight"])
    np.testing.assert_array_equal(weights["model.layers.1.mlp.down_proj.weight"], tiny.weights["blk.1.ffn_down.weight"])
    np.testing.assert_array_equal(gguf_order(weights["model.layers.0.self_attn.q_proj.weight"], 4), tiny.weights["blk.0.attn_q.weight"])
    np.testing.assert_array_equal(gguf_order(weights["model.layers.0.self_attn.k_proj.weight"], 2), tiny.weights["blk.0.attn_k.weight"])
    np.testing.assert_array_equal(weights["model.layers.0.self_attn.v_proj.weight"], tiny.weights["blk.0.attn_v.weight"])


@pytest.mark.parametrize(
    ("kind", "largest_error"), [(_TYPES.F16, 0.002), (_TYPES.Q8_0, 0.02), (_TYPES.Q4_0, 0.35), (_TYPES.Q4_1, 0.25), (_TYPES.Q5_0, 0.2)]
)
def test_import_quantised_types_come_back_close(tmp_path: Path, kind: gguf.GGMLQuantizationType, largest_error: float) -> None:
    tiny = TinyGguf(matrix_type=kind)
    weights = load_file(import_model(tiny.write(tmp_path / "tiny.gguf"), "tiny", tmp_path).file(WEIGHTS))
    found, stored = weights["model.layers.0.mlp.up_proj.weight"], tiny.weights["blk.0.ffn_up.weight"]
    assert found.dtype == np.float32
    assert 0 < np.abs(found - stored).max() < largest_error


def test_import_config_describes_the_network(tmp_path: Path) -> None:
    source = TinyGguf(tied=False).write(tmp_path / "tiny.gguf")
    version = import_model(source, "tiny", tmp_path, ImportOptions(max_context_tokens=100, eos_tokens=("<|endoftext|>",)))
    config = json.loads(version.read(CONFIG))
    expected = {
        "vocab_size": 263,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 100,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "eos_token_id": [0, 2],
    }
    assert config.items() >= expected.items()
    assert version.eos_token_ids == {0, 2}
    assert version.max_context_tokens == 100


def test_import_tokenizer_splits_merges_and_keeps_control_tokens_whole(tmp_path: Path) -> None:
    tiny = TinyGguf()
    version = import_model(tiny.write(tmp_path / "tiny.gguf"), "tiny", tmp_path)
    tokenizer = Tokenizer.from_str(version.read(TOKENIZER).decode())
    assert tokenizer.encode("in the 12<|im_end|>").tokens == ["in", "Ġthe", "Ġ", "1", "2", "<|im_end|>"]
    ids = tokenizer.encode("zażółć 🦊\n<|im_start|>").ids
    assert tokenizer.decode(ids) == "zażółć 🦊\n"
    assert tokenizer.decode(ids, skip_special_tokens=False) == "zażółć 🦊\n<|im_start|>"
    assert [tokenizer.token_to_id(token) for token in tiny.vocabulary()] == list(range(263))


def test_import_add_bos_is_a_special_token_that_the_caller_asks_for(tmp_path: Path) -> None:
    version = import_model(TinyGguf(add_bos=True).write(tmp_path / "tiny.gguf"), "tiny", tmp_path)
    tokenizer = Tokenizer.from_str(version.read(TOKENIZER).decode())
    assert tokenizer.encode("in").tokens == ["<|im_start|>", "in"]
    assert tokenizer.encode("in", add_special_tokens=False).tokens == ["in"]


@pytest.mark.parametrize(
    ("tiny", "reason"),
    [
        (TinyGguf(architecture="qwen2"), "only llama"),
        (TinyGguf(pre_tokenizer="qwen2"), "tokenizer gpt2/qwen2 is not supported"),
        (TinyGguf(rope_scaling="yarn"), "rotary"),
        (TinyGguf(extra_tensor="blk.0.attn_q.bias"), "no place in a llama"),
        (TinyGguf(extra_tensor="blk.2.attn_norm.weight"), "no place in a llama"),
    ],
)
def test_import_what_would_compute_wrongly_is_refused(tmp_path: Path, tiny: TinyGguf, reason: str) -> None:
    source = tiny.write(tmp_path / "tiny.gguf")
    with pytest.raises(ModelImportError, match=reason):
        import_model(source, "tiny", tmp_path)
    assert ModelStore(tmp_path).list() == []


@pytest.mark.parametrize("keep", [0, 3, 100, 0.5, 0.99])
def test_import_truncated_source_is_refused_and_leaves_nothing(tmp_path: Path, keep: float) -> None:
    source = TinyGguf().write(tmp_path / "tiny.gguf")
    content = source.read_bytes()
    source.write_bytes(content[: int(keep * len(content)) if isinstance(keep, float) else keep])
    with pytest.raises(ModelImportError, match="not a whole GGUF file"):
        import_model(source, "tiny", tmp_path)
    assert [entry.name for entry in (tmp_path / "models" / "tiny").iterdir()] == [".lock"]


def test_import_missing_source_and_unknown_eos_token_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelImportError, match=r"no\.gguf"):
        import_model(tmp_path / "no.gguf", "tiny", tmp_path)
    with pytest.raises(ModelImportError, match="<end>"):
        import_model(TinyGguf().write(tmp_path / "tiny.gguf"), "tiny", tmp_path, ImportOptions(eos_tokens=("<end>",)))
    with pytest.raises(ModelNotFoundError, match="not a model name"):
        import_model(tmp_path / "tiny.gguf", "../tiny", tmp_path)


def test_import_twice_converts_once_and_again_after_damage(tmp_path: Path) -> None:
    source = TinyGguf().write(tmp_path / "tiny.gguf")
    stages: list[str] = []
    first = import_model(source, "tiny", tmp_path, progress=lambda stage, done, total: stages.append(stage))
    assert "weights" in stages
    stages.clear()
    assert import_model(source, "tiny", tmp_path, progress=lambda stage, done, total: stages.append(stage)) == first
    assert "weights" not in stages
    first.file(WEIGHTS).write_bytes(b"x" * first.files[WEIGHTS].num_bytes)
    import_model(source, "tiny", tmp_path).verify()
    (first.path / MANIFEST).write_text("{")
    import_model(source, "tiny", tmp_path).verify()
    assert len(ModelStore(tmp_path).list()) == 1


def test_import_other_options_make_another_version(tmp_path: Path) -> None:
    source = TinyGguf().write(tmp_path / "tiny.gguf")
    first = import_model(source, "tiny", tmp_path)
    second = import_model(source, "tiny", tmp_path, ImportOptions(defaults={"temperature": 0.2}))
    assert first.version != second.version
    assert ModelStore(tmp_path).get("tiny") == second
    assert import_model(source, "tiny", tmp_path) == first
    assert ModelStore(tmp_path).get("tiny") == first


def test_import_same_source_elsewhere_has_the_same_version(tmp_path: Path) -> None:
    source = TinyGguf().write(tmp_path / "tiny.gguf")
    versions = {import_model(source, "tiny", tmp_path / home).version for home in ("one", "two")}
    assert len(versions) == 1


def test_import_by_several_at_once_gives_one_whole_version(tmp_path: Path) -> None:
    source = TinyGguf().write(tmp_path / "tiny.gguf")
    found: list[str] = []
    start = threading.Barrier(4)

    def run() -> None:
        start.wait(timeout=10)
        found.append(import_model(source, "tiny", tmp_path).version)

    _in_threads(run, 4)
    assert len(found) == 4
    assert len(set(found)) == 1
    versions = ModelStore(tmp_path).list()
    assert [version.version for version in versions] == found[:1]
    versions[0].verify()
    assert {entry.name for entry in versions[0].path.parent.iterdir()} == {".lock", found[0]}


def test_import_sweeps_what_a_dead_importer_left(tmp_path: Path) -> None:
    left = tmp_path / "models" / "tiny" / ".tmp-dead"
    left.mkdir(parents=True)
    (left / WEIGHTS).write_bytes(b"half")
    import_model(TinyGguf().write(tmp_path / "tiny.gguf"), "tiny", tmp_path)
    assert not left.exists()


def test_import_progress_of_the_weights_grows_to_the_whole(tmp_path: Path) -> None:
    heard: list[tuple[int, int]] = []

    def hear(stage: str, done: int, total: int) -> None:
        if stage == "weights":
            heard.append((done, total))

    import_model(TinyGguf().write(tmp_path / "tiny.gguf"), "tiny", tmp_path, progress=hear)
    assert heard == sorted(heard)
    assert heard[-1][0] == heard[-1][1] > 0


def _in_threads(run: Callable[[], None], count: int) -> None:
    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
