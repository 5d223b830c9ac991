"""YAML templates whose open places are filled as data: a value can never change the structure around it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

Value = Any  # one node of a configuration tree: mapping, list or scalar


def load_template(path: Path, values: Mapping[str, Value]) -> Value:
    """Load `path`, resolving three tags.

    `!value NAME` becomes `values[NAME]`, `!seconds NAME` the same number as a protobuf duration ("1.5s"), and
    `!text FILE` the text of a file beside the template. A name that is not in `values` raises KeyError.
    """

    class Loader(yaml.SafeLoader):
        """Own class, so that the tags are bound to this call only."""

    def name(node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise yaml.constructor.ConstructorError(None, None, "a tag needs a single name", node.start_mark)
        return str(node.value)

    Loader.add_constructor("!value", lambda _, node: values[name(node)])
    Loader.add_constructor("!seconds", lambda _, node: f"{float(values[name(node)]):g}s")
    Loader.add_constructor("!text", lambda _, node: (path.parent / name(node)).read_text())
    return yaml.load(path.read_text(), Loader)


class _PlainDumper(yaml.SafeDumper):
    """Writes shared parts out in full; anchors would hide what a listener really does."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def to_yaml(tree: Value) -> str:
    """The tree as YAML, in the order in which it was built."""
    return yaml.dump(tree, Dumper=_PlainDumper, sort_keys=False, width=140)
