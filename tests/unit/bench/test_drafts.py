"""Counters of guessed tokens, as servers show them."""

import pytest

from bench import drafts
from bench.drafts import Drafts, accepted_share, tokens_per_step

_PAGE = """\
# TYPE vllm:spec_decode_num_drafts counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="model"} 10.0
vllm:spec_decode_num_drafts_created{engine="0",model_name="model"} 1.7e+09
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="model"} 7.0e+01
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="model"} 42.0
vllm:spec_decode_num_accepted_tokens_total{engine="1",model_name="a b"} 1.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 9.0
"""


def test_counters_are_read_by_name_and_added_up_over_labels() -> None:
    assert Drafts.parse(_PAGE) == Drafts(10, 70, 43)


@pytest.mark.parametrize("page", ["", "up 1\n", "\n".join(_PAGE.splitlines()[:3])])
def test_page_without_all_the_counters_tells_nothing(page: str) -> None:
    assert Drafts.parse(page) is None


def test_what_came_between_two_readings() -> None:
    assert Drafts(10, 70, 43).since(Drafts(4, 28, 3)) == Drafts(6, 42, 40)


def test_shares() -> None:
    assert accepted_share(Drafts(10, 80, 60)) == 0.75
    assert tokens_per_step(Drafts(10, 80, 60), 90) == 3.0
    assert (accepted_share(Drafts(0, 0, 0)), tokens_per_step(Drafts(0, 0, 0), 90)) == (None, 1.0)
    assert (accepted_share(None), tokens_per_step(None, 90)) == (None, None)


def test_server_that_does_not_listen_tells_nothing() -> None:
    assert drafts.read("http://127.0.0.1:9/metrics") is None
