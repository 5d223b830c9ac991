"""Servers measured in turns, beside a server that answers at once."""

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psutil
import pytest

from bench.connection import Target
from bench.drafts import Drafts
from bench.rounds import Quiet, Rounds
from bench.shape import Point

_EVENTS = (
    {"choices": [{"text": "a", "finish_reason": None}]},
    {"choices": [{"text": "", "finish_reason": "length"}], "usage": {"completion_tokens": 4}},
)
_BODY = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in _EVENTS) + b"data: [DONE]\n\n"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "_Server"

    def do_POST(self) -> None:
        self.server.heard.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.send_header("Content-Length", str(len(_BODY)))
        self.end_headers()
        self.wfile.write(_BODY)

    def log_message(self, format: str, *args: object) -> None:
        return


class _Server(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.heard: list[dict[str, object]] = []


@dataclass
class Fake:
    """A contender that shares its server with others: the model's name tells whose turn it is."""

    name: str
    server: _Server
    numerics: str = "none"
    readings: Iterator[Drafts] | None = field(default=None)

    def start(self) -> float:
        return 0.0

    def target(self) -> Target:
        return Target(f"http://127.0.0.1:{self.server.server_address[1]}", self.name)

    def processes(self) -> list[psutil.Process]:
        return []

    def rss_mb(self) -> float:
        return 1.0

    def drafts(self) -> Drafts | None:
        return next(self.readings) if self.readings else None

    def stop(self) -> None:
        return


@pytest.fixture
def server() -> Iterator[_Server]:
    with _Server() as found:
        thread = threading.Thread(target=found.serve_forever, args=(0.01,))
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def rounds(fakes: list[Fake], takes_no_part: str = "") -> Rounds:
    in_time = time.monotonic() + 60
    return Rounds(fakes, Quiet(1.0, 0.0), lambda text: None, in_time, lambda name, point: name != takes_no_part)


def prompts(server: _Server, name: str) -> list[tuple[int, ...]]:
    """Of the measured requests of one server: those that wake it ask for four tokens."""
    asked = [body for body in server.heard if body["model"] == name and body["max_tokens"] == 2]
    return [tuple(body["prompt"]) for body in asked]  # type: ignore[arg-type]


def test_servers_get_the_same_prompts_and_none_twice(server: _Server) -> None:
    point = Point.parse("8:0:2@2")
    rows = rounds([Fake("a", server), Fake("b", server)]).measure([point], repeats=2)
    assert [(row.engine, row.num_runs, row.num_failed) for row in rows] == [("a", 2, 0), ("b", 2, 0)]
    assert len(set(prompts(server, "a"))) == 2 * point.num_requests
    assert sorted(prompts(server, "a")) == sorted(prompts(server, "b"))


def test_server_that_takes_no_part_at_a_point_has_no_row(server: _Server) -> None:
    rows = rounds([Fake("a", server), Fake("b", server)], takes_no_part="b").measure([Point.parse("8:0:2@1")], repeats=1)
    assert [row.engine for row in rows] == ["a"]
    assert not prompts(server, "b")


def test_guesses_are_those_of_the_run_only(server: _Server) -> None:
    readings = iter([Drafts(5, 50, 40), Drafts(7, 60, 46)])
    (row,) = rounds([Fake("a", server, readings=readings)]).measure([Point.parse("8:0:2@1")], repeats=1)
    assert (row.accepted_share, row.tokens_per_step) == (0.6, 1.33)
