"""With an identity provider configured, only a token that verifies becomes a claim the gateway may trust."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from deploy.envoy.settings import JwtSettings
from tests.harness.edge import running_edge

SECRET = b"a secret that only this test knows"
ISSUER, AUDIENCE = "https://issuer.test", "inferway"
GOOD = {"iss": ISSUER, "aud": AUDIENCE, "sub": "tenant-7", "exp": 4_000_000_000}


def encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def token(claims: dict[str, Any], secret: bytes = SECRET) -> str:
    head = {"alg": "HS256", "typ": "JWT", "kid": "1"}
    signed = ".".join(encode(json.dumps(part).encode()) for part in (head, claims))
    return f"{signed}.{encode(hmac.digest(secret, signed.encode(), hashlib.sha256))}"


@pytest_asyncio.fixture
async def http(tmp_path: Path) -> AsyncIterator[httpx2.AsyncClient]:
    jwks = tmp_path / "jwks.json"
    jwks.write_text(json.dumps({"keys": [{"kty": "oct", "kid": "1", "alg": "HS256", "k": encode(SECRET)}]}))
    async with running_edge(tmp_path, jwt=JwtSettings(ISSUER, (AUDIENCE,), jwks)) as edge, httpx2.AsyncClient(base_url=edge.url) as client:
        yield client


async def subjects(http: httpx2.AsyncClient, bearer: str) -> list[str]:
    headers = {"authorization": f"Bearer {bearer}", "x-jwt-subject": "forged"}
    answer = await http.post("/v1/chat/completions", json={"model": "echo"}, headers=headers)
    seen = answer.json()["metadata"]
    assert ["authorization", f"Bearer {bearer}"] in seen
    return [value for key, value in seen if key == "x-jwt-subject"]


async def test_jwt_verified_subject_reaches_the_gateway(http: httpx2.AsyncClient) -> None:
    assert await subjects(http, token(GOOD)) == ["tenant-7"]


@pytest.mark.parametrize(
    "bearer",
    [
        "iw-an-api-key",
        token(GOOD, b"another secret, just as long as it"),
        token({**GOOD, "aud": "someone-else"}),
        token({**GOOD, "iss": "https://elsewhere.test"}),
        token({**GOOD, "exp": 1_000_000_000}),
    ],
    ids=["api-key", "wrong-signature", "wrong-audience", "wrong-issuer", "expired"],
)
async def test_jwt_anything_else_passes_without_a_subject(http: httpx2.AsyncClient, bearer: str) -> None:
    assert await subjects(http, bearer) == []
