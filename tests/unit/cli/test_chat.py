"""The figures under an answer."""

from __future__ import annotations

from cli.chat import Figures


def test_figures_count_the_rate_from_the_first_token_on() -> None:
    assert str(Figures(ttft_s=0.5, total_s=2.5, num_tokens=21)) == "21 tokens · TTFT 500 ms · 10.0 tok/s"


def test_figures_of_a_single_token_have_no_rate() -> None:
    assert str(Figures(ttft_s=0.5, total_s=0.5, num_tokens=1)) == "1 tokens · TTFT 500 ms · -"
