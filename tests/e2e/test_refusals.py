"""Bad input through the real edge: the right status, the OpenAI shape and the field's name, for streams and plain answers alike."""

from __future__ import annotations

import json
import pathlib

import httpx2 as httpx
import pytest

from tests.harness.mesh import MODEL, Mesh

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

HELLO = [{"role": "user", "content": "hi"}]
LONG = [{"role": "user", "content": "word " * 9000}]

TABLE = {
    "no model": ({"messages": HELLO}, 400, "model"),
    "unknown model": ({"model": "gpt-9", "messages": HELLO}, 404, "model"),
    "no messages": ({"model": MODEL}, 400, "messages"),
    "empty messages": ({"model": MODEL, "messages": []}, 400, "messages"),
    "unknown role": ({"model": MODEL, "messages": [{"role": "wizard", "content": "x"}]}, 400, "messages[0].role"),
    "hot": ({"model": MODEL, "messages": HELLO, "temperature": "hot"}, 400, "temperature"),
    "too hot": ({"model": MODEL, "messages": HELLO, "temperature": 2.5}, 400, "temperature"),
    "top_p zero": ({"model": MODEL, "messages": HELLO, "top_p": 0}, 400, "top_p"),
    "n": ({"model": MODEL, "messages": HELLO, "n": 1000}, 400, "n"),
    "max_tokens zero": ({"model": MODEL, "messages": HELLO, "max_tokens": 0}, 400, "max_tokens"),
    "five stops": ({"model": MODEL, "messages": HELLO, "stop": ["a", "b", "c", "d", "e"]}, 400, "stop"),
    "misspelt": ({"model": MODEL, "messages": HELLO, "max_tokns": 3}, 400, "max_tokns"),
    "nested misspelt": ({"model": MODEL, "messages": [{"role": "user", "content": "x", "nmae": "y"}]}, 400, "messages[0].nmae"),
    "not served": ({"model": MODEL, "messages": HELLO, "response_format": {"type": "json_object"}}, 400, "response_format"),
    "likeliest of nothing": ({"model": MODEL, "messages": HELLO, "top_logprobs": 3}, 400, "top_logprobs"),
    "too many likeliest": ({"model": MODEL, "messages": HELLO, "n": 2, "logprobs": True, "top_logprobs": 20}, 400, "logprobs"),
    "image": (
        {"model": MODEL, "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://127.0.0.1:9/"}}]}]},
        400,
        "messages[0].content[0]",
    ),
    "longer than the context": ({"model": MODEL, "messages": LONG}, 400, "messages"),
}

RAW = {
    "broken": (b'{"model": ', 400),
    "array": (b"[]", 400),
    "empty": (b"", 400),
    "not utf-8": (b'{"model": "\xff"}', 400),
    "duplicate keys": (b'{"model": "a", "model": "b"}', 400),
    "deep": (b"[" * 100_000, 400),
    "five megabytes": (json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "x" * 5_000_000}]}).encode(), 413),
}


def post(mesh: Mesh, content: bytes, **headers: str) -> httpx.Response:
    given = {"authorization": f"Bearer {mesh.key}", "content-type": "application/json", **headers}
    return httpx.post(f"{mesh.base_url}/v1/chat/completions", content=content, headers=given, timeout=30)


def shaped(response: httpx.Response) -> dict[str, object]:
    assert response.headers["content-type"] == "application/json"
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["message"]
    return dict(error)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("case", TABLE)
def test_bad_request_names_the_field(mesh: Mesh, case: str, stream: bool) -> None:
    body, code, param = TABLE[case]
    response = post(mesh, json.dumps({**body, "stream": stream}).encode())
    assert (response.status_code, shaped(response)["param"]) == (code, param)


@pytest.mark.parametrize("case", RAW)
def test_bad_body_is_refused_in_shape(mesh: Mesh, case: str) -> None:
    content, code = RAW[case]
    response = post(mesh, content)
    assert response.status_code == code
    shaped(response)


def test_context_error_tells_the_counts(mesh: Mesh) -> None:
    error = shaped(post(mesh, json.dumps({"model": MODEL, "messages": LONG}).encode()))
    assert error["code"] == "context_length_exceeded"
    assert "9" in str(error["message"])


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"authorization": ""}, 401),
        ({"authorization": "Bearer sk-no"}, 401),
        ({"authorization": "Basic abc"}, 401),
        ({"x-tenant": "b"}, 200),
    ],
)
def test_identity_comes_from_the_key_only(mesh: Mesh, headers: dict[str, str], code: int) -> None:
    response = post(mesh, json.dumps({"model": MODEL, "messages": HELLO, "max_tokens": 1}).encode(), **headers)
    assert response.status_code == code
    if code != 200:
        shaped(response)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/metrics",
        "/docs",
        "/openapi.json",
        "/admin",
        "/config_dump",
        "/clusters",
        "/quitquitquit",
        "//v1/models",
        "/V1/models",
        "/v1/../admin",
        "/v1/%2e%2e/admin",
    ],
)
def test_nothing_but_the_api_is_public(mesh: Mesh, path: str) -> None:
    response = httpx.get(f"{mesh.base_url}{path}", timeout=10)
    assert response.status_code in (401, 404)


def test_wrong_method_is_405(mesh: Mesh) -> None:
    response = httpx.get(f"{mesh.base_url}/v1/chat/completions", timeout=10)
    assert response.status_code == 405
    shaped(response)


def test_logs_hold_no_key_prompt_or_answer(mesh: Mesh) -> None:
    marker = "zebracrossing-marker-prompt"
    answer = post(mesh, json.dumps({"model": MODEL, "messages": [{"role": "user", "content": marker}], "max_tokens": 6}).encode())
    broken = post(mesh, f'{{"model": "{MODEL}", "messages": "{marker}"}}'.encode())
    assert (answer.status_code, broken.status_code) == (200, 400)
    text = answer.json()["choices"][0]["message"]["content"]
    secrets = (marker, mesh.key, text)
    guilty = [
        (log.name, number)
        for log in pathlib.Path(mesh.home.logs).glob("*.log")
        for number, secret in enumerate(secrets)
        if secret in log.read_text(errors="replace")
    ]
    assert guilty == []
