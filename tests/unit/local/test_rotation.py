"""Logs stay below their bound, and the last word of a dead child is found."""

from __future__ import annotations

from pathlib import Path

from deploy.local.rotation import last_line, rotate


def test_rotate_of_a_small_log_leaves_it_alone(tmp_path: Path) -> None:
    log = tmp_path / "gateway.log"
    log.write_text("small\n")

    assert not rotate(log, max_bytes=100)
    assert log.read_text() == "small\n"


def test_rotate_keeps_two_old_logs_and_lets_the_writer_go_on(tmp_path: Path) -> None:
    log = tmp_path / "gateway.log"
    with log.open("ab", buffering=0) as writer:
        for text in (b"first\n", b"second\n", b"third\n"):
            writer.write(text)
            assert rotate(log, max_bytes=3)
        writer.write(b"now\n")

    assert log.read_text() == "now\n"
    assert (tmp_path / "gateway.log.1").read_text() == "third\n"
    assert (tmp_path / "gateway.log.2").read_text() == "second\n"
    assert not (tmp_path / "gateway.log.3").exists()


def test_rotate_of_a_log_that_is_not_there_does_nothing(tmp_path: Path) -> None:
    assert not rotate(tmp_path / "none.log")


def test_last_line_skips_empty_lines(tmp_path: Path) -> None:
    log = tmp_path / "router.log"
    log.write_text("starting\ncannot listen on 127.0.0.1:1\n\n  \n")

    assert last_line(log) == "cannot listen on 127.0.0.1:1"
    assert last_line(tmp_path / "none.log") == ""
