"""A model card is complete and known in every field, or names what is wrong with it."""

from pathlib import Path

import pytest

from services.engine.model.card import ModelCard, load_card
from services.engine.model.errors import ModelImportError
from tests.harness.smollm import smollm_card


def test_shipped_card_finds_its_source_in_the_installed_package() -> None:
    card = smollm_card()
    assert (card.name, card.license) == ("smollm2-135m-instruct", "Apache-2.0")
    assert card.source().stat().st_size > 50_000_000


def test_load_card_lists_every_fault_at_once(tmp_path: Path) -> None:
    path = tmp_path / "card.yaml"
    path.write_text(
        "name: 3\ncolour: red\nmax_context_tokens: true\nsource: {url: x}\ndefaults: {speed: 1, top_p: high}\n"
        "numerics: {gpu: {}, cpu: {activations: 7, kv: int4, heat: 3}}\n"
    )
    with pytest.raises(ModelImportError) as caught:
        load_card(path)
    for fault in (
        "unknown field colour",
        "name must be a str",
        "license is missing",
        "max_context_tokens must be a int",
        "unknown field source.url",
        "source.file is missing",
        "unknown field defaults.speed",
        "defaults.top_p must be a number",
        "unknown field numerics.gpu",
        "unknown field numerics.cpu.heat",
        "numerics.cpu.activations must be one of 8, 15",
        "numerics.cpu.kv must be one of bfloat16, int8",
    ):
        assert fault in str(caught.value)


@pytest.mark.parametrize(("content", "reason"), [("", "name is missing"), ("[1]", "name is missing"), ("a: [", "not YAML")])
def test_load_card_that_is_no_card_is_refused(tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "card.yaml"
    path.write_text(content)
    with pytest.raises(ModelImportError, match=reason):
        load_card(path)
    with pytest.raises(ModelImportError, match="cannot be read"):
        load_card(tmp_path / "none.yaml")


def test_source_missing_package_or_file_says_what_to_do() -> None:
    with pytest.raises(ModelImportError, match="pip install no-such-distribution"):
        ModelCard("m", "MIT", "no-such-distribution", "x.gguf").source()
    with pytest.raises(ModelImportError, match=r"holds no x\.gguf"):
        ModelCard("m", "MIT", "gguf", "x.gguf").source()
    assert ModelCard("m", "MIT", source_file="a/b.gguf").source() == Path("a/b.gguf")
