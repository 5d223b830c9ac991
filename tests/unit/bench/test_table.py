"""Tables made of a result, the gaps behind a long prompt, and perplexities as servers tell them."""

import dataclasses
from pathlib import Path

import pytest

from bench import table
from bench.engine import arguments_of
from bench.head_of_line import HeadOfLine, summarise
from bench.perplexity import PerplexityError, scored
from bench.recording import Answer, Recording
from bench.result import Result
from tests.unit.bench.test_row import row


def result(path: Path) -> Result:
    rows = [row("inferway", 300), row("llama.cpp", 100), dataclasses.replace(row("vllm", 50), num_failed=2)]
    found = Result(path, {"priority": False}, {"cpus": 2}, rows, {"inferway": 1.5}, perplexity={"vllm": 28.5})
    found.head_of_line.append(HeadOfLine("vllm", 1.0, 2.0, float("nan"), 4.0, 5.0, 6))
    return found


def test_report_says_what_was_reached_and_what_failed(tmp_path: Path) -> None:
    text = table.report(result(tmp_path / "r.json").content())
    assert "**3.00** x llama.cpp (reached: 2.0)" in text
    assert "50, 2 failed" in text
    assert "28.500" in text
    assert "| engine 150 %, envoy 10 % |" in text
    assert "| inferway | start to ready, replica | ≤ 5.0 s | 1.5 s | yes |" in text


def test_report_shows_guesses_where_the_server_tells_of_them(tmp_path: Path) -> None:
    content = result(tmp_path / "r.json").content()
    content["rows"][0] |= {"tokens_per_step": 2.5, "accepted_share": 0.82}
    shown = {line.split(" | ")[2]: line.split(" | ")[9:11] for line in table.rates(content).splitlines()[2:]}
    assert (shown["inferway"], shown["vllm"]) == (["2.50", "82 %"], ["-", "-"])


def test_written_result_is_json_without_nan_and_has_all_keys(tmp_path: Path) -> None:
    written = result(tmp_path / "sub" / "r.json")
    written.write()
    text = written.path.read_text(encoding="utf-8")
    assert "NaN" not in text
    assert {"rows", "ratios", "marks", "start_s", "machine", "roofline", "perplexity", "head_of_line"} <= written.content().keys()


def test_document_gets_tables_between_its_markers_only() -> None:
    document = "a\n<!-- bench:engine -->\nold\n<!-- /bench:engine -->\nb\n"
    assert table.into(document, "bench:engine", "new \\1\n") == "a\n<!-- bench:engine -->\nnew \\1\n<!-- /bench:engine -->\nb\n"


def test_roofline_tells_the_share_of_the_floor_that_a_step_reaches(tmp_path: Path) -> None:
    step = {"runner": "cpu 8 bits", "shape": "decode 1", "ms": 3.5, "floor_ms": 3.3, "bound": "memory", "share": 0.94}
    found = {"read_gb_s": {"1": {"84": 18.0}, "2": {"84": 28.0, "135": 29.0}}, "int8_gop_s": 900.0, "bfloat16_gflop_s": 450.0}
    content = result(tmp_path / "r.json").content() | {"roofline": found | {"threads": 2, "steps": [step]}}
    assert "| cpu 8 bits | decode 1 | 3.5 | 3.3 | memory | 94 % |" in table.report(content)
    assert "2 thread(s) 29 GB/s" in table.report(content)


def test_steps_are_shown_by_part_for_runners_that_tell() -> None:
    rows = [{"shape": "decode 1", "runner": "cpu", "min_ms": 3.0, "parts": {"head": 1.0}}, {"shape": "x", "runner": "torch", "parts": {}}]
    assert table.steps({"rows": rows}).splitlines()[2:] == ["| decode 1 | cpu | 3.00 | 1.00 |"]


def test_document_without_markers_is_refused() -> None:
    with pytest.raises(ValueError):
        table.into("nothing", "bench:engine", "new")


def test_gaps_are_those_that_overlap_the_long_prompt() -> None:
    recording = Recording(100.0)
    answer = Answer((0.5, 1.0, 1.5, 3.0, 3.5, 6.0), 6)
    found = summarise("x", 101.2, 103.2, [recording], [answer], 2.0)
    assert (found.itl_ms_p50_before, found.itl_ms_max, found.num_gaps, found.long_ttft_ms) == (500.0, 1500.0, 3, 2000.0)


def test_second_half_of_an_echoed_window_is_scored() -> None:
    completion = {"choices": [{"logprobs": {"token_logprobs": [None, -1.0, -2.0, -3.0, -9.0]}}]}
    assert scored(completion, 4) == [-3.0]


@pytest.mark.parametrize(
    "completion", [{}, {"choices": [{"logprobs": None}]}, {"choices": [{"logprobs": {"token_logprobs": [None, -1.0]}}]}]
)
def test_answer_without_enough_log_probabilities_is_refused(completion: dict[str, object]) -> None:
    with pytest.raises(PerplexityError):
        scored(completion, 4)


def test_published_results_show_what_comes_without_speculation_and_with_prompts_of_text() -> None:
    given = arguments_of(["--publish"])
    assert (given.text, given.speculation) == (True, "on,off")
    assert (arguments_of([]).text, arguments_of([]).speculation) == (False, "on")


@pytest.mark.parametrize("arguments", [["--speculation", "maybe"], ["--points", "text:8"]])
def test_options_are_checked_before_anything_starts(arguments: list[str]) -> None:
    with pytest.raises(SystemExit):
        arguments_of(arguments)


def test_numerics_are_checked_before_anything_starts(capsys: pytest.CaptureFixture[str]) -> None:
    assert arguments_of(["--numerics", "8,15"]).numerics == "8,15"
    with pytest.raises(SystemExit):
        arguments_of(["--numerics", "4"])
    assert "8, 15" in capsys.readouterr().err
