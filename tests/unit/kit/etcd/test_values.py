"""The range that stands for a prefix."""

from __future__ import annotations

import pytest

from services.kit.etcd.values import prefix_end


@pytest.mark.parametrize(
    ("prefix", "end"),
    [(b"/a/", b"/a0"), (b"a\xff", b"b"), (b"a\xff\xff", b"b"), (b"\xff\xff", b"\0"), (b"", b"\0")],
)
def test_prefix_end_is_the_first_key_behind_all_keys_with_the_prefix(prefix: bytes, end: bytes) -> None:
    assert prefix_end(prefix) == end
