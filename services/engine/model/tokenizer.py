"""Rebuilds the byte-level BPE tokenizer that a GGUF file carries as tables."""

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from services.engine.model.errors import ModelImportError
from services.engine.model.gguf_source import GgufSource

_CONTROL = 3
_USER_DEFINED = 4


def _smollm() -> pre_tokenizers.PreTokenizer:
    digits = pre_tokenizers.Digits(individual_digits=True)
    return pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])


def _gpt2() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


_PRE_TOKENIZERS = {"smollm": _smollm, "gpt-2": _gpt2}


def build_tokenizer(source: GgufSource) -> Tokenizer:
    """The tokenizer of `source`: control tokens match before any splitting. ModelImportError for a kind that would split differently."""
    kind, pre = source.text("tokenizer.ggml.model"), source.text("tokenizer.ggml.pre", "default")
    if kind != "gpt2" or pre not in _PRE_TOKENIZERS:
        raise ModelImportError(f"tokenizer {kind}/{pre} is not supported; supported: gpt2 with {', '.join(sorted(_PRE_TOKENIZERS))}")
    tokens = [str(token) for token in source.items("tokenizer.ggml.tokens")]
    kinds = [int(kind) for kind in source.items("tokenizer.ggml.token_type")]
    merges = [_pair(str(merge)) for merge in source.items("tokenizer.ggml.merges")]
    if len(tokens) != source.tensor_shape("token_embd.weight")[0] or len(kinds) != len(tokens) or len(set(tokens)) != len(tokens):
        raise ModelImportError("the vocabulary does not match the embedding table")
    tokenizer = Tokenizer(models.BPE(vocab={token: index for index, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = _PRE_TOKENIZERS[pre]()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([_added(token, kind) for token, kind in zip(tokens, kinds, strict=True) if kind in (_CONTROL, _USER_DEFINED)])
    bos = source.token_id("tokenizer.ggml.bos_token_id")
    if bos is not None and source.flag("tokenizer.ggml.add_bos_token", False):
        tokenizer.post_processor = processors.TemplateProcessing(single=f"{tokens[bos]} $A", special_tokens=[(tokens[bos], bos)])
    return tokenizer


def _added(token: str, kind: int) -> AddedToken:
    return AddedToken(token, special=kind == _CONTROL, normalized=False)


def _pair(merge: str) -> tuple[str, str]:
    left, _, right = merge.partition(" ")
    return left, right
