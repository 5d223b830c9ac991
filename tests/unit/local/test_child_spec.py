"""Start order follows the dependencies and refuses what can never start."""

from __future__ import annotations

import pytest

from deploy.local.child_spec import ChildSpec, levels


async def never() -> bool:
    return False


def spec(name: str, *after: str) -> ChildSpec:
    return ChildSpec(name=name, argv=("true",), probe=never, after=frozenset(after))


def test_levels_put_every_child_behind_what_it_waits_for() -> None:
    order = levels([spec("envoy", "gateway"), spec("gateway", "etcd"), spec("metering", "etcd", "kafka"), spec("etcd"), spec("kafka")])

    assert [sorted(one.name for one in level) for level in order] == [["etcd", "kafka"], ["gateway", "metering"], ["envoy"]]


@pytest.mark.parametrize(
    "specs",
    [[spec("a", "b"), spec("b", "a")], [spec("a", "nobody")], [spec("a"), spec("a")]],
    ids=["cycle", "unknown", "duplicate"],
)
def test_levels_that_cannot_be_are_refused(specs: list[ChildSpec]) -> None:
    with pytest.raises(ValueError, match=r"wait|duplicate"):
        levels(specs)
