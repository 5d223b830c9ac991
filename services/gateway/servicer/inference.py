"""The typed face for gRPC clients: the same requests as REST, over one bidirectional stream."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import grpc
from google.protobuf.message import DecodeError

from inferway.edge.v1 import inference_pb2, inference_pb2_grpc
from services.gateway.answer import Accepted, Answer, Ending, Piece
from services.gateway.chat_messages import check_role
from services.gateway.chat_request import check_num_choices, make_sampling, parse_stop
from services.gateway.keys import Keys
from services.gateway.logprobs import TokenLogprob, TokenLogprobs
from services.gateway.models import Models
from services.gateway.pipeline import Pipeline
from services.gateway.request import MAX_MESSAGES, GenerationRequest, Message, SamplingParams
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
        call = make_call(context, "grpc", lambda: _read(start))
        answer = self._pipeline.start(call)
        when_done(context, answer.cancel)
        # Lives no longer than the call: its reads end with the stream, and the call's end cancels it.
        listener = asyncio.ensure_future(_listen(request_iterator, answer))
        try:
            # At once: the edge's bound on the time to receive a request ends only here, and a bidirectional one never ends by itself.
            await send_headers(context, call, stream=True)
            accepted = await answer.accepted()
            yield inference_pb2.GenerateResponse(accepted=_accepted(accepted))
            async for pieces in answer.pieces():
                for piece in pieces:
                    yield inference_pb2.GenerateResponse(delta=_delta(piece))
            _raise_wrong_message(listener)
            for response in _ending(answer.ending):
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


def _read(start: inference_pb2.GenerateStart) -> GenerationRequest:
    """Validates like the REST face; field names are those of the proto."""
    if start.idempotency_key:
        raise FieldError("idempotency_key", "idempotency keys are not supported yet; leave the field out", reason="UNSUPPORTED_FIELD")
    if not start.model:
        raise FieldError("model", "model is required")
    if not start.messages:
        raise FieldError("messages", "messages must hold at least one message")
    if len(start.messages) > MAX_MESSAGES:
        raise FieldError("messages", f"messages must hold at most {MAX_MESSAGES} messages")
    if start.HasField("max_completion_tokens") and not 1 <= start.max_completion_tokens < 2**31:
        raise FieldError("max_completion_tokens", "max_completion_tokens must be at least 1")
    return GenerationRequest(
        model=start.model,
        messages=tuple(
            Message(check_role(f"messages[{index}].role", message.role), message.content) for index, message in enumerate(start.messages)
        ),
        sampling=_sampling(start.sampling),
        stop=parse_stop("stop", list(start.stop)),
        max_output_tokens=start.max_completion_tokens if start.HasField("max_completion_tokens") else None,
        stream=True,
    )


def _sampling(sampling: inference_pb2.Sampling) -> SamplingParams:
    if sampling.HasField("n"):
        if sampling.n == 0:
            raise FieldError("sampling.n", "sampling.n must be at least 1")
        check_num_choices("sampling.n", sampling.n)
    return make_sampling(
        sampling.temperature if sampling.HasField("temperature") else None,
        sampling.top_p if sampling.HasField("top_p") else None,
        sampling.seed if sampling.HasField("seed") else None,
        prefix="sampling.",
    )


def _accepted(accepted: Accepted) -> inference_pb2.GenerateAccepted:
    return inference_pb2.GenerateAccepted(completion_id=accepted.completion_id, model=accepted.model, created=accepted.created_unix_s)


def _delta(piece: Piece) -> inference_pb2.GenerateDelta:
    return inference_pb2.GenerateDelta(index=piece.index, text=piece.text, logprobs=map(_logprobs, piece.logprobs))


def _logprobs(position: TokenLogprobs) -> inference_pb2.TokenLogprobs:
    return inference_pb2.TokenLogprobs(chosen=_logprob(position.chosen), top=map(_logprob, position.top))


def _logprob(token: TokenLogprob) -> inference_pb2.TokenLogprob:
    return inference_pb2.TokenLogprob(token_id=token.token_id, token=token.token, logprob=token.logprob)


def _ending(ending: Ending) -> Iterator[inference_pb2.GenerateResponse]:
    for index, reason in enumerate(ending.finish_reasons):
        yield inference_pb2.GenerateResponse(finished=inference_pb2.GenerateFinished(index=index, finish_reason=reason))
    usage = inference_pb2.TokenUsage(
        prompt_tokens=ending.usage.prompt_tokens,
        completion_tokens=ending.usage.completion_tokens,
        cached_prompt_tokens=ending.usage.cached_prompt_tokens,
    )
    yield inference_pb2.GenerateResponse(usage=usage)
