"""A tokenizer and the weights it comes with speak of one vocabulary, or the model is refused."""

from dataclasses import replace

import pytest

from services.engine.llama import read_config
from services.engine.model.importer import import_model
from services.engine.token_bytes import TokenBytes
from services.kit.model_store import ModelCorruptError, ModelVersion
from tests.harness.tiny_gguf import TinyGguf


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> ModelVersion:
    home = tmp_path_factory.mktemp("tiny")
    return import_model(TinyGguf().write(home / "tiny.gguf"), "tiny", home)


def test_tokens_of_a_model_are_as_many_as_its_weights_have_rows(version: ModelVersion) -> None:
    assert len(TokenBytes.of(version)) == version.vocab_size == read_config(version).vocab_size


def test_tokenizer_with_tokens_that_have_no_weights_is_refused(version: ModelVersion) -> None:
    with pytest.raises(ModelCorruptError, match=r"the tokenizer has 263 tokens, the weights 262; import the model again"):
        TokenBytes.of(replace(version, vocab_size=262))


def test_weights_for_another_vocabulary_than_the_manifest_says_are_refused(version: ModelVersion) -> None:
    with pytest.raises(ModelCorruptError, match=r"config\.json does not describe"):
        read_config(replace(version, vocab_size=264))
