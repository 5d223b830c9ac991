"""The typed face for gRPC clients: the same requests as REST, over one bidirectional stream."""

import asyncio
from collections.abc import AsyncIterator

import grpc
from google.protobuf.message import DecodeError

from inferway.edge.v1 import inference_pb2, inference_pb2_grpc
from services.gateway.answer import Answer
from services.gateway.keys import Keys
from services.gateway.models import Models
from services.gateway.pipeline import Pipeline
from services.gateway.servicer.generate_messages import accepted_to_proto, ending_to_proto, piece_to_proto, request_from_proto
from services.gateway.servicer.metadata import Context, authorization, make_call, send_headers, when_done
from services.kit.errors import Cancelled, DeadlineExceeded, FieldError, InferwayError, InvalidArgument, MalformedBody

_START_TIMEOUT_S = 10.0


class InferenceServicer(inference_pb2_grpc.InferenceServicer):
    """See edge/v1/inference.proto."""

    def __init__(self, pipeline: Pipeline, keys: Keys, models: Models) -> None:
        self._pipeline = pipeline
        self._keys = keys
        self._models = models

    async def Generate(
        self, request_iterator: AsyncIterator[inference_pb2.GenerateRequest], context: Context
    ) -> AsyncIterator[inference_pb2.GenerateResponse]:
        """Start, then perhaps cancel; accepted, deltas, finished and usage."""
        start = await _first(request_iterator)
        call = make_call(context, "grpc", lambda: request_from_proto(start))
        answer = self._pipeline.start(call)
        when_done(context, answer.cancel)
        # Lives no longer than the call: its reads end with the stream, and the call's end cancels it.
        listener = asyncio.ensure_future(_listen(request_iterator, answer))
        try:
            # At once: the edge's bound on the time to receive a request ends only here, and a bidirectional one never ends by itself.
            await send_headers(context, call, stream=True)
            accepted = await answer.accepted()
            yield accepted_to_proto(accepted)
            async for pieces in answer.pieces():
                for piece in pieces:
                    yield piece_to_proto(piece)
            _raise_wrong_message(listener)
            for response in ending_to_proto(answer.ending):
                yield response
        except Cancelled:
            # A message out of turn cancels too; before the first token that is all that the answer knows.
            _raise_wrong_message(listener)
            raise
        finally:
            listener.cancel()
            answer.cancel()

    async def ListServedModels(
        self, request: inference_pb2.ListServedModelsRequest, context: Context
    ) -> inference_pb2.ListServedModelsResponse:
        """The models that the key may use."""
        identity = self._keys.authenticate(authorization(context))
        models = (
            inference_pb2.ServedModel(
                model=model.name,
                model_version=model.version,
                max_context_tokens=model.max_context_tokens,
                created=model.created_unix_s,
            )
            for model in self._models.visible(identity)
        )
        return inference_pb2.ListServedModelsResponse(models=models)


async def _first(requests: AsyncIterator[inference_pb2.GenerateRequest]) -> inference_pb2.GenerateStart:
    try:
        async with asyncio.timeout(_START_TIMEOUT_S):
            first = await anext(requests)
    except TimeoutError:
        raise DeadlineExceeded(f"no start message came within {_START_TIMEOUT_S:g} s") from None
    except StopAsyncIteration:
        raise InvalidArgument("the stream ended before a start message came") from None
    except DecodeError:
        raise MalformedBody("the first message is not the protobuf message of this method") from None
    if first.WhichOneof("kind") != "start":
        raise FieldError("kind", "the first message must be start")
    return first.start


async def _listen(requests: AsyncIterator[inference_pb2.GenerateRequest], answer: Answer) -> InferwayError | None:
    """Cancels the answer at the first message after start; returns what was wrong with that message, if anything."""
    try:
        async for request in requests:
            answer.cancel()
            return None if request.WhichOneof("kind") == "cancel" else FieldError("kind", "start is allowed once; after it only cancel")
    except grpc.aio.AioRpcError:
        answer.cancel()
    except DecodeError:
        answer.cancel()
        return MalformedBody("a message is not the protobuf message of this method")
    return None


def _raise_wrong_message(listener: "asyncio.Future[InferwayError | None]") -> None:
    if listener.done() and not listener.cancelled() and (error := listener.result()) is not None:
        raise error
