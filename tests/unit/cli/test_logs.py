"""Following a log: whole lines, no line twice, and a rotation in between."""

from __future__ import annotations

from pathlib import Path

from cli.logs import Tail


def test_tail_shows_the_last_lines_then_only_new_whole_ones(tmp_path: Path) -> None:
    log = tmp_path / "gateway.log"
    log.write_text("1\n2\n3\n")
    tail = Tail(log)

    assert tail.last(2) == ["2", "3"]
    with log.open("a") as file:
        file.write("4\n5 is not fin")
    assert tail.new() == ["4"]
    with log.open("a") as file:
        file.write("ished\n")
    assert tail.new() == ["5 is not finished"]
    assert tail.new() == []


def test_tail_of_a_rotated_log_begins_anew(tmp_path: Path) -> None:
    log = tmp_path / "gateway.log"
    log.write_text("a long line before the rotation\n")
    tail = Tail(log)
    tail.last(0)

    log.write_text("after\n")

    assert tail.new() == ["after"]
