"""POST /v1/completions as Envoy calls it: text or token ids in, one document or one event stream out, in OpenAI's shapes."""

import json
from typing import Any

from google.api.httpbody_pb2 import HttpBody

from inferway.edge.v1 import openai_pb2
from tests.contract.gateway.conftest import Mesh
from tests.harness.gateway_service import SECRET, WAIT_S, RunningGateway, collect, credentials, events
from tests.harness.tiny_model import NAME


def complete(gateway: RunningGateway, **fields: Any) -> Any:
    """The call of POST /v1/completions."""
    data = json.dumps({"model": NAME, "prompt": [5, 6, 7], **fields}).encode()
    request = openai_pb2.CreateCompletionRequest(body=HttpBody(content_type="application/json", data=data))
    return gateway.openai.CreateCompletion(request, metadata=credentials(SECRET), timeout=WAIT_S)


async def test_completion_of_token_ids_is_one_document(gateway: RunningGateway, mesh: Mesh) -> None:
    document = json.loads(await collect(complete(gateway, ignore_eos=True)))
    assert document["object"] == "text_completion"
    assert document["choices"] == [{"index": 0, "text": "one two three", "logprobs": None, "finish_reason": "stop"}]
    assert (document["usage"]["prompt_tokens"], document["usage"]["completion_tokens"]) == (3, 3)
    start = (await mesh.engine.next_attempt()).start
    assert (list(start.prompt_token_ids), start.max_output_tokens, start.ignore_eos) == ([5, 6, 7], 16, True)


async def test_completion_stream_has_text_then_finish_then_usage(gateway: RunningGateway) -> None:
    found = events(await collect(complete(gateway, stream=True, stream_options={"include_usage": True})))
    assert found.pop() == "[DONE]"
    last = found.pop()
    assert (last["choices"], last["usage"]["total_tokens"]) == ([], 6)
    assert {chunk["object"] for chunk in found} == {"text_completion"}
    assert "".join(chunk["choices"][0]["text"] for chunk in found) == "one two three"
    assert [chunk["choices"][0]["finish_reason"] for chunk in found] == [None] * (len(found) - 1) + ["stop"]
