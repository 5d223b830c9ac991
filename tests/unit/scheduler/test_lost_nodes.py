"""When a node counts as lost."""

from services.scheduler.lost_nodes import LostNodes


def test_lost_nodes_absence_longer_than_the_grace_loses_a_node() -> None:
    lost = LostNodes(30)
    assert lost.observe({"a"}, 100) == frozenset()
    assert lost.observe({"a"}, 129.9) == frozenset()
    assert lost.observe({"a"}, 130) == {"a"}


def test_lost_nodes_return_starts_the_count_anew() -> None:
    lost = LostNodes(30)
    lost.observe({"a", "b"}, 100)
    lost.observe({"b"}, 120)
    assert lost.observe({"a", "b"}, 131) == {"b"}
    assert lost.observe({"a", "b"}, 161) == {"a", "b"}


def test_lost_nodes_outage_of_the_registry_loses_nobody() -> None:
    lost = LostNodes(30)
    lost.observe({"a"}, 100)
    lost.forget()
    assert lost.observe({"a"}, 200) == frozenset()
    assert lost.observe({"a"}, 230) == {"a"}
