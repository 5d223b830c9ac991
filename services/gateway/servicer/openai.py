"""The REST face: bodies in, OpenAI's JSON documents and event streams out."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing

from google.api.httpbody_pb2 import HttpBody

from inferway.edge.v1 import openai_pb2, openai_pb2_grpc
from services.gateway import openai_json
from services.gateway.answer import Accepted, Answer
from services.gateway.call import Call
from services.gateway.chat_request import parse_chat
from services.gateway.completion_request import parse_completion
from services.gateway.json_body import parse_object
from services.gateway.keys import Keys
from services.gateway.models import Models
from services.gateway.pipeline import Pipeline
from services.gateway.servicer.completions import completion_body, completion_events
from services.gateway.servicer.documents import whole_document
from services.gateway.servicer.events import stream_events
from services.gateway.servicer.metadata import Context, authorization, make_call, send_headers, when_done
from services.kit.errors import Unimplemented

_JSON, _EVENTS = "application/json", "text/event-stream"


class OpenAIServicer(openai_pb2_grpc.OpenAIServicer):
    """See edge/v1/openai.proto."""

    def __init__(self, pipeline: Pipeline, keys: Keys, models: Models, max_body_bytes: int) -> None:
        self._pipeline = pipeline
        self._keys = keys
        self._models = models
        self._max_body_bytes = max_body_bytes

    async def CreateChatCompletion(self, request: openai_pb2.CreateChatCompletionRequest, context: Context) -> AsyncIterator[HttpBody]:
        """Streams events, or one document, whichever the body asks for."""
        call = make_call(context, "rest", lambda: parse_chat(parse_object(request.body.data, self._max_body_bytes)))
        async with aclosing(self._serve(context, call, _events, _document)) as bodies:
            async for body in bodies:
                yield body

    async def CreateCompletion(self, request: openai_pb2.CreateCompletionRequest, context: Context) -> AsyncIterator[HttpBody]:
        """Streams events, or one document, whichever the body asks for."""
        call = make_call(context, "rest", lambda: parse_completion(parse_object(request.body.data, self._max_body_bytes)))
        async with aclosing(self._serve(context, call, completion_events, completion_body)) as bodies:
            async for body in bodies:
                yield body

    async def CreateEmbedding(self, request: openai_pb2.CreateEmbeddingRequest, context: Context) -> AsyncIterator[HttpBody]:
        """Not served yet."""
        self._keys.authenticate(authorization(context))
        raise Unimplemented("embeddings are not served yet; this release serves POST /v1/chat/completions")
        yield

    async def ListModels(self, request: openai_pb2.ListModelsRequest, context: Context) -> HttpBody:
        """The models that the key may use."""
        identity = self._keys.authenticate(authorization(context))
        return HttpBody(content_type=_JSON, data=openai_json.model_list(self._models.visible(identity)))

    async def GetModel(self, request: openai_pb2.GetModelRequest, context: Context) -> HttpBody:
        """One model."""
        identity = self._keys.authenticate(authorization(context))
        return HttpBody(content_type=_JSON, data=openai_json.model_document(self._models.resolve(request.model, identity)))

    async def _serve(
        self,
        context: Context,
        call: Call,
        to_events: Callable[[Accepted, Answer], AsyncIterator[bytes]],
        to_document: Callable[[Accepted, Answer], Awaitable[bytes]],
    ) -> AsyncGenerator[HttpBody, None]:
        answer = self._pipeline.start(call)
        when_done(context, answer.cancel)
        try:
            accepted = await answer.accepted()
            if accepted.request.stream:
                await send_headers(context, call, stream=True)
                async for events in to_events(accepted, answer):
                    yield HttpBody(content_type=_EVENTS, data=events)
            else:
                document = await to_document(accepted, answer)
                await send_headers(context, call, stream=False)
                yield HttpBody(content_type=_JSON, data=document)
        finally:
            answer.cancel()


async def _events(accepted: Accepted, answer: Answer) -> AsyncIterator[bytes]:
    """The roles, with what text there is, then as in `stream_events`."""
    chunks = openai_json.ChunkWriter(accepted)
    yield chunks.roles() + b"".join(map(chunks.piece, answer.take()))
    async for events in stream_events(chunks, accepted, answer):
        yield events


def _document(accepted: Accepted, answer: Answer) -> Awaitable[bytes]:
    return whole_document(openai_json.DocumentWriter(accepted), accepted, answer)
