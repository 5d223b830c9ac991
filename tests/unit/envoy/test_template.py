"""The three tags of a template."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from deploy.envoy.template import load_template, to_yaml


def template(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "template.yaml"
    path.write_text(text)
    return path


def test_load_template_values_keep_their_type(tmp_path: Path) -> None:
    path = template(tmp_path, "{ a: !value port, b: !value tree, c: !seconds wait, d: !seconds whole }")
    values = {"port": 1, "tree": {"x": [1]}, "wait": 0.25, "whole": 30}
    assert load_template(path, values) == {"a": 1, "b": {"x": [1]}, "c": "0.25s", "d": "30s"}


def test_load_template_text_is_read_beside_the_template(tmp_path: Path) -> None:
    (tmp_path / "script.lua").write_text("-- one: [two]\n")
    assert load_template(template(tmp_path, "a: !text script.lua"), {}) == {"a": "-- one: [two]\n"}


def test_load_template_unknown_name_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="missing"):
        load_template(template(tmp_path, "a: !value missing"), {})


def test_load_template_tag_on_a_list_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(yaml.constructor.ConstructorError, match="single name"):
        load_template(template(tmp_path, "a: !value [b]"), {"b": 1})


def test_load_template_other_tags_stay_unsafe(tmp_path: Path) -> None:
    with pytest.raises(yaml.constructor.ConstructorError):
        load_template(template(tmp_path, "a: !!python/name:os.system"), {})


def test_load_template_tags_of_one_call_do_not_leak_into_the_next(tmp_path: Path) -> None:
    path = template(tmp_path, "a: !value x")
    assert load_template(path, {"x": 1}) == {"a": 1}
    assert load_template(path, {"x": 2}) == {"a": 2}


def test_to_yaml_shared_parts_are_written_out() -> None:
    shared = {"x": 1}
    assert "&" not in to_yaml({"a": shared, "b": shared})
