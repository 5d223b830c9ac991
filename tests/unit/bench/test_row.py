"""Rows, ratios and marks."""

import dataclasses
import math

import pytest

from bench.drafts import Drafts
from bench.load import summarise
from bench.recording import Answer
from bench.row import Row, Run, judge, quotient, ratios, row_of
from bench.shape import Point


def row(
    engine: str,
    rate: float,
    point: str = "128:0:64@1",
    ttft: float = 10.0,
    itl_p95: float = 5.0,
    rss: float = 100.0,
    drafts: Drafts | None = None,
) -> Row:
    outcome = summarise([Answer((0.1, 0.2), 2)], 1.0, 0.0)
    outcome = dataclasses.replace(outcome, output_tok_s=rate, ttft_ms_p50=ttft, itl_ms_p95=itl_p95)
    return row_of(engine, "numbers", Point.parse(point), [Run(outcome, 0.01, rss, {"engine": 1.5, "idle": 0.001, "envoy": 0.1}, drafts)])


def test_row_is_the_median_of_its_runs_and_tells_the_worst_disturbance() -> None:
    one = summarise([Answer((0.1, 0.2), 2)], 1.0, 0.0)
    runs = [
        Run(dataclasses.replace(one, output_tok_s=rate, num_failed=rate == 9), rate / 100, rate, {"a": 0.1, "b": rate})
        for rate in (1.0, 9.0, 3.0)
    ]
    found = row_of("vllm", "n", Point.parse("128:0:64@1"), runs)
    assert (found.output_tok_s, found.output_tok_s_runs) == (3.0, (1.0, 9.0, 3.0))
    assert list(found.cpu_shares.items()) == [("b", 3.0), ("a", 0.1)]
    assert (found.foreign_share, found.rss_mb, found.num_runs, found.num_requests, found.num_failed) == (0.09, 9.0, 3, 3, 1)


def test_ratio_takes_the_faster_peer_for_the_rate_and_the_quicker_one_for_the_first_token() -> None:
    rows = [row("inferway", 210, ttft=10), row("llama.cpp", 100, ttft=20), row("vllm", 50, ttft=8)]
    (found,) = ratios(rows)
    assert (found.best_peer, found.output_tok_s, found.ttft, found.wanted, found.is_met) == ("llama.cpp", 2.1, 1.25, 2.0, True)


def test_another_mesh_of_ours_is_no_peer() -> None:
    found = ratios([row("inferway", 300), row("inferway 15-bit", 200), row("vllm", 100)])
    assert [(one.engine, one.best_peer, one.output_tok_s) for one in found] == [("inferway", "vllm", 3.0), ("inferway 15-bit", "vllm", 2.0)]


def test_ours_without_speculation_stands_beside_the_peers_and_is_judged_by_no_mark() -> None:
    rows = [row("inferway", 300), row("inferway-plain", 100), row("vllm", 100)]
    found = {one.engine: one for one in ratios(rows)}
    assert (found["inferway-plain"].output_tok_s, found["inferway-plain"].wanted, found["inferway-plain"].is_met) == (1.0, None, True)
    assert {mark.engine for mark in judge(rows, {"inferway-plain": 9.0, "inferway": 1.0})} == {"inferway"}


def test_peers_that_guess_stand_beside_those_that_the_marks_name() -> None:
    (found,) = ratios([row("inferway", 300), row("vllm", 100), row("vllm-ngram", 200, ttft=1), row("llama.cpp-ngram", 150)])
    assert (found.best_peer, found.output_tok_s, found.is_met) == ("vllm", 3.0, True)
    assert (found.guessing_peer, found.to_guessing) == ("vllm-ngram", 1.5)
    (alone,) = ratios([row("inferway", 300), row("vllm", 100)])
    assert (alone.guessing_peer, alone.to_guessing) == (None, None)


def test_point_of_text_has_a_ratio_and_no_mark() -> None:
    rows = [row("inferway", 100, "text:128:0:64@1", ttft=99), row("vllm", 100, "text:128:0:64@1")]
    assert [one.wanted for one in ratios(rows)] == [None]
    assert [mark.what for mark in judge(rows, {})] == ["peak RSS at equal KV"]
    assert [one.prompts for one in rows] == ["text", "text"]


def test_row_tells_how_many_guesses_were_right_in_all_its_runs() -> None:
    outcome = dataclasses.replace(summarise([Answer((0.1, 0.2), 2)], 1.0, 0.0), output_tokens=60)
    runs = [Run(outcome, 0.0, 1.0, {}, Drafts(10, 50, accepted)) for accepted in (30, 50)]
    found = row_of("inferway", "n", Point.parse("128:0:64@1"), runs)
    assert (found.accepted_share, found.tokens_per_step) == (0.8, 3.0)


@pytest.mark.parametrize(("drafts", "tokens_per_step"), [(None, None), (Drafts(0, 0, 0), 1.0)])
def test_row_without_guesses_has_no_share_of_them(drafts: Drafts | None, tokens_per_step: float | None) -> None:
    found = row("vllm", 1, drafts=drafts)
    assert (found.accepted_share, found.tokens_per_step) == (None, tokens_per_step)


def test_mark_is_missed_by_a_hair() -> None:
    (found,) = ratios([row("inferway", 199), row("vllm", 100)])
    assert not found.is_met


@pytest.mark.parametrize("rows", [[row("inferway", 1)], [row("vllm", 1), row("llama.cpp", 2)]])
def test_no_ratio_without_ours_or_without_a_peer(rows: list[Row]) -> None:
    assert ratios(rows) == []


def test_point_without_a_mark_has_a_ratio_that_is_never_missed() -> None:
    (found,) = ratios([row("inferway", 1, "64:0:8@2"), row("vllm", 100, "64:0:8@2")])
    assert (found.wanted, found.is_met) == (None, True)


def test_marks_speak_of_rate_first_token_tail_start_and_memory() -> None:
    point = "1024:0:64@32"
    rows = [row("inferway", 200, point, 10, 20, 40), row("vllm", 100, point, 11, 100, 100), row("llama.cpp", 9, point, 30, 1000, 1)]
    found = {mark.what: mark for mark in judge(rows, {"inferway": 6.0})}
    assert {what: mark.is_met for what, mark in found.items()} == {
        "output tok/s, 1024:0:64 x 32": True,
        "TTFT p50, 1024:0:64 x 32": True,
        "ITL p95, 1024:0:64@32": True,
        "start to ready, replica": False,
        "peak RSS at equal KV": True,
    }
    assert found["ITL p95, 1024:0:64@32"].found == "0.20 x"


def test_quotient_of_nothing_is_no_number() -> None:
    assert math.isnan(quotient(1.0, 0.0))
