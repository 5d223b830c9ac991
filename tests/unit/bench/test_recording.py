"""Streams as they come off the wire, read back into answers."""

import json

import pytest

from bench.recording import Recording, read_answer

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nKeep-Alive: timeout=5, max=100\r\n\r\n"


def event(text: str | None = None, finish: str | None = None, usage: int | None = None, cached: int = 0) -> bytes:
    message: dict[str, object] = {"choices": [] if text is None else [{"text": text, "finish_reason": finish}]}
    if usage is not None:
        message["usage"] = {"completion_tokens": usage, "prompt_tokens_details": {"cached_tokens": cached}}
    return b"data: " + json.dumps(message).encode() + b"\n\n"


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


_DONE = chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


def recorded(*pieces: bytes) -> Recording:
    """Pieces that came one second apart, the first of them one second after the request."""
    return Recording(100.0, [(101.0 + index, piece) for index, piece in enumerate(pieces)])


def test_each_chunk_with_text_is_an_arrival_and_tokens_are_the_servers_count() -> None:
    answer = read_answer(recorded(_HEAD, chunk(event("a")), chunk(event("bc")), chunk(event("", "length", 3, 2)), _DONE))
    assert answer.arrivals_s == (2.0, 3.0)
    assert (answer.output_tokens, answer.cached_tokens, answer.text) == (3, 2, "abc")
    assert answer.is_ok


def test_usage_may_come_in_a_chunk_without_choices_or_with_empty_text() -> None:
    answer = read_answer(
        recorded(_HEAD, chunk(event("a")), chunk(event("", None)), chunk(event("", "length")), chunk(event(usage=2)), _DONE)
    )
    assert (len(answer.arrivals_s), answer.output_tokens) == (2, 2)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
def test_pieces_may_be_cut_anywhere(size: int) -> None:
    whole = _HEAD + chunk(event("a")) + chunk(event("b")) + chunk(event("", "stop", 2)) + _DONE
    pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
    answer = read_answer(recorded(*pieces))
    assert (answer.text, answer.output_tokens, answer.failure) == ("ab", 2, "")
    assert answer.arrivals_s[0] < answer.arrivals_s[1]


def test_several_events_in_one_piece_arrive_together() -> None:
    answer = read_answer(recorded(_HEAD + chunk(event("a") + event("b")), chunk(event("", "stop", 2)) + _DONE))
    assert answer.arrivals_s == (1.0, 1.0)


def test_body_without_chunked_coding_is_read_as_well() -> None:
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
    assert read_answer(recorded(head + event("a"), event("", "stop", 1) + b"data: [DONE]\n\n")).output_tokens == 1


@pytest.mark.parametrize(
    ("pieces", "failure"),
    [
        ((_HEAD, chunk(event("a"))), "broke off after 1"),
        ((b"HTTP/1.1 429 Too Many\r\n\r\n{}",), "status 429"),
        ((_HEAD, chunk(b'data: {"error": {"message": "no"}}\n\n'), _DONE), "no"),
        ((_HEAD, chunk(event("a")), _DONE), "no usage"),
        ((_HEAD, chunk(b"data: {\n\n"), _DONE), "unreadable"),
        ((), "status"),
    ],
)
def test_anything_but_a_whole_stream_is_a_failure(pieces: tuple[bytes, ...], failure: str) -> None:
    assert failure in read_answer(recorded(*pieces)).failure


def test_failure_of_the_connection_is_kept() -> None:
    assert read_answer(Recording(1.0, [], "connection lost")).failure == "connection lost"
