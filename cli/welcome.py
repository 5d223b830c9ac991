"""What `inferway up` says at its end: where the mesh listens, the key, and commands that work when pasted."""

import json
from collections.abc import Mapping

from deploy.local.up import MODEL, Ready

_QUESTION = "Say hello in five words."


def welcome(ready: Ready) -> str:
    """The whole text. Every command in it is complete."""
    url, tls = ready.settings.base_url, f"https://localhost:{ready.settings.ports.edge_tls}"
    ca = ready.settings.home.certs / "ca.pem"
    return f"""
Inferway is up. {ready.broker_reason}

  Base URL   {url}/v1   (TLS: {tls}/v1, CA in {ca})
  API key    {ready.keys.demo}

Stream an answer:

{curl(ready)}

The same over gRPC:

{grpcurl(ready)}

Next: inferway chat · inferway status · inferway usage · inferway down"""


def curl(ready: Ready) -> str:
    """One line that streams."""
    body = _json({"model": MODEL, "stream": True, "temperature": 0.2, "messages": [{"role": "user", "content": _QUESTION}]})
    return (
        f"curl -N {ready.settings.base_url}/v1/chat/completions -H 'Authorization: Bearer {ready.keys.demo}' "
        f"-H 'Content-Type: application/json' -d '{body}'"
    )


def grpcurl(ready: Ready) -> str:
    """One line that streams. The descriptor file stands in for reflection, which is off at the edge."""
    body = _json({"start": {"model": MODEL, "messages": [{"role": "user", "content": _QUESTION}]}})
    return (
        f"grpcurl -plaintext -protoset {ready.settings.home.descriptors} -H 'Authorization: Bearer {ready.keys.demo}' "
        f"-d '{body}' 127.0.0.1:{ready.settings.ports.edge_http} inferway.edge.v1.Inference/Generate"
    )


def _json(value: Mapping[str, object]) -> str:
    return json.dumps(value, separators=(",", ":"))
