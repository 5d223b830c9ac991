"""The imported tokenizer and chat template agree with transformers' own reading of the same GGUF file."""

import json
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import regex
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from services.kit.model_store import CHAT_TEMPLATE, TOKENIZER
from tests.harness.smollm import smollm, smollm_card

pytestmark = pytest.mark.timeout(180)
NAUGHTY_STRINGS = json.loads((Path(__file__).parents[2] / "data" / "blns" / "blns.json").read_text(encoding="utf-8"))
CHATS = [
    [{"role": "user", "content": "Hi"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi\n"}],
    [{"role": "user", "content": " a "}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "{{ 7 * 7 }} <|im_end|>"}],
    [{"role": "system", "content": ""}, {"role": "user", "content": "日本 🦊"}],
]


@pytest.fixture(scope="module")
def reference() -> Iterator[PreTrainedTokenizerBase]:
    source = smollm_card().source()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield AutoTokenizer.from_pretrained(os.fspath(source.parent), gguf_file=source.name)


@pytest.fixture(scope="module")
def ours() -> Tokenizer:
    return Tokenizer.from_str(smollm().read(TOKENIZER).decode())


def test_naughty_strings_have_the_reference_ids(reference: PreTrainedTokenizerBase, ours: Tokenizer) -> None:
    assert len(NAUGHTY_STRINGS) > 500
    different = [text for text in NAUGHTY_STRINGS if ours.encode(text, add_special_tokens=False).ids != reference.encode(text)]
    assert different == []


def test_naughty_strings_decode_to_themselves_but_for_control_characters(ours: Tokenizer) -> None:
    """The vocabulary has no token for some control bytes; they vanish in every reading of it."""
    texts = [text for text in NAUGHTY_STRINGS if not regex.search(r"[\x00-\x08\x0e-\x1f\x7f]", text)]
    assert len(texts) > 500
    assert [text for text in texts if ours.decode(ours.encode(text, add_special_tokens=False).ids) != text] == []


def test_vocabulary_is_the_reference_one(reference: PreTrainedTokenizerBase, ours: Tokenizer) -> None:
    assert ours.get_vocab() == reference.get_vocab()
    assert len(ours.get_vocab()) == smollm().vocab_size


@pytest.mark.parametrize("text", ["12345", "a1b22c333", "½ Ⅷ ٣ ௧௨", "x²+y²", "3.14e-10", " 7 77 ", "١٢٣"])
def test_every_numeric_character_is_a_piece_of_its_own(ours: Tokenizer, text: str) -> None:
    """The `smollm` rule of GGUF splits before BPE at every character of Unicode class N, which transformers' reading leaves out."""
    assert ours.pre_tokenizer is not None
    pieces = [text[begin:end] for _, (begin, end) in ours.pre_tokenizer.pre_tokenize_str(text)]
    assert "".join(pieces) == text
    assert all(piece == found for piece in pieces for found in regex.findall(r"\p{N}", piece))


@pytest.mark.parametrize("chat", CHATS)
@pytest.mark.parametrize("add_generation_prompt", [True, False])
def test_chat_template_renders_as_the_reference_does(
    reference: PreTrainedTokenizerBase, ours: Tokenizer, chat: list[dict[str, str]], add_generation_prompt: bool
) -> None:
    template = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True).from_string(smollm().read(CHAT_TEMPLATE).decode())
    text = template.render(messages=chat, add_generation_prompt=add_generation_prompt)
    assert text == reference.apply_chat_template(chat, tokenize=False, add_generation_prompt=add_generation_prompt)
    ids = reference.apply_chat_template(chat, tokenize=True, add_generation_prompt=add_generation_prompt, return_dict=False)
    assert ours.encode(text, add_special_tokens=False).ids == ids
