"""Paths in etcd cannot be forged by names: a segment never holds a slash or a control character."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.kit import keyspace


@given(st.text(), st.text())
def test_replica_names_never_escape_their_level(model: str, replica: str) -> None:
    try:
        key = keyspace.replica(model, replica)
    except ValueError:
        return
    assert key == f"/inferway/v1/replicas/{model}/{replica}"
    assert key.count("/") == 5


@pytest.mark.parametrize("name", ["", "a/b", "../x", "a\x00", "a b", "ä", "x" * 129, "-a"])
def test_segment_refuses_what_could_be_misread(name: str) -> None:
    with pytest.raises(ValueError, match="not a valid name"):
        keyspace.segment(name)
