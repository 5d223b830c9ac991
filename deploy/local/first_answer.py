"""The proof that a mesh works: one streamed answer through the edge, exactly as the printed curl command asks for it."""

import http.client
import json

_TIMEOUT_S = 20.0


def ask(port: int, key: str, model: str) -> str:
    """Ask for one token. Empty when the first event arrived; else why not, in a few words."""
    body = {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_completion_tokens": 1, "stream": True}
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        response = connection.getresponse()
        if response.status != http.client.OK:
            return _reason(response.status, response.read(4096))
        return "" if response.readline().startswith(b"data:") else "the answer is not an event stream"
    except (OSError, http.client.HTTPException) as error:
        return f"the edge does not answer ({type(error).__name__})"
    finally:
        connection.close()


def _reason(status: int, body: bytes) -> str:
    try:
        message = json.loads(body)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        message = "no explanation"
    return f"HTTP {status}: {message}"
