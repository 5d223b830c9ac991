"""Translates the messages of Inference.Generate: a start into a request, what comes of it into responses."""

from collections.abc import Iterator
from dataclasses import replace

from inferway.edge.v1 import inference_pb2 as pb
from services.gateway.answer import Accepted, Ending, Piece
from services.gateway.chat_messages import check_role
from services.gateway.field_types import optional_int
from services.gateway.logprobs import TokenLogprob, TokenLogprobs
from services.gateway.request import MAX_CHOICES, MAX_MESSAGES, MAX_TOP_LOGPROBS, FieldNames, GenerationRequest, Message
from services.gateway.sampling_fields import parse_sampling
from services.gateway.stop_fields import parse_min_tokens, parse_stop, parse_stop_token_ids
from services.kit.errors import FieldError

_MAX_INT = 2**31 - 1
_OF_MESSAGES = FieldNames(logit_bias="sampling.logit_bias", logprobs="top_logprobs")
_OF_TOKEN_IDS = replace(_OF_MESSAGES, input="prompt_token_ids")


def request_from_proto(start: pb.GenerateStart) -> GenerationRequest:
    """Validates like the REST face; field names in errors are those of the proto."""
    if start.idempotency_key:
        raise FieldError("idempotency_key", "idempotency keys are not supported yet; leave the field out", reason="UNSUPPORTED_FIELD")
    if not start.model:
        raise FieldError("model", "model is required")
    sampling: dict[str, object] = {field.name: value for field, value in start.sampling.ListFields()}
    sampling["logit_bias"] = {str(token_id): bias for token_id, bias in start.sampling.logit_bias.items()}
    max_output_tokens = _optional(start, "max_completion_tokens", 1, _MAX_INT)
    return GenerationRequest(
        model=start.model,
        messages=_messages(start),
        prompt=tuple(start.prompt_token_ids) or None,
        sampling=parse_sampling(sampling, prefix="sampling."),
        stop=parse_stop("stop", list(start.stop)),
        max_output_tokens=max_output_tokens,
        stream=True,
        num_choices=optional_int("sampling.n", sampling.get("n"), 1, MAX_CHOICES) or 1,
        min_output_tokens=parse_min_tokens("min_tokens", _optional(start, "min_tokens", 0, _MAX_INT), max_output_tokens),
        stop_token_ids=parse_stop_token_ids("stop_token_ids", list(start.stop_token_ids)),
        include_stop=start.include_stop,
        ignore_eos=start.ignore_eos,
        num_logprobs=_optional(start, "top_logprobs", 0, MAX_TOP_LOGPROBS),
        names=_OF_TOKEN_IDS if start.prompt_token_ids else _OF_MESSAGES,
    )


def accepted_to_proto(accepted: Accepted) -> pb.GenerateResponse:
    """The first response."""
    message = pb.GenerateAccepted(completion_id=accepted.completion_id, model=accepted.model, created=accepted.created_unix_s)
    return pb.GenerateResponse(accepted=message)


def piece_to_proto(piece: Piece) -> pb.GenerateResponse:
    """New output of one choice."""
    delta = pb.GenerateDelta(index=piece.index, text=piece.text, logprobs=map(_logprobs, piece.logprobs))
    return pb.GenerateResponse(delta=delta)


def ending_to_proto(ending: Ending) -> Iterator[pb.GenerateResponse]:
    """How each choice ended, and the usage of them all."""
    for index, reason in enumerate(ending.finish_reasons):
        yield pb.GenerateResponse(finished=pb.GenerateFinished(index=index, finish_reason=reason))
    usage = pb.TokenUsage(
        prompt_tokens=ending.usage.prompt_tokens,
        completion_tokens=ending.usage.completion_tokens,
        cached_prompt_tokens=ending.usage.cached_prompt_tokens,
    )
    yield pb.GenerateResponse(usage=usage)


def _optional(start: pb.GenerateStart, name: str, minimum: int, maximum: int) -> int | None:
    return optional_int(name, getattr(start, name) if start.HasField(name) else None, minimum, maximum)


def _messages(start: pb.GenerateStart) -> tuple[Message, ...]:
    if start.prompt_token_ids:
        if start.messages:
            raise FieldError("prompt_token_ids", "messages and prompt_token_ids cannot be given together")
        return ()
    if not start.messages:
        raise FieldError("messages", "messages must hold at least one message")
    if len(start.messages) > MAX_MESSAGES:
        raise FieldError("messages", f"messages must hold at most {MAX_MESSAGES} messages")
    return tuple(
        Message(check_role(f"messages[{index}].role", message.role), message.content) for index, message in enumerate(start.messages)
    )


def _logprobs(position: TokenLogprobs) -> pb.TokenLogprobs:
    return pb.TokenLogprobs(chosen=_logprob(position.chosen), top=map(_logprob, position.top))


def _logprob(token: TokenLogprob) -> pb.TokenLogprob:
    return pb.TokenLogprob(token_id=token.token_id, token=token.token, logprob=token.logprob)
