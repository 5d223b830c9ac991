"""Refuses token ids that a model does not have, before anything is asked of a replica."""

from collections.abc import Iterable

from services.gateway.request import GenerationRequest
from services.kit.errors import FieldError


def check_token_ids(request: GenerationRequest, vocab_size: int) -> None:
    """TOKEN_OUT_OF_RANGE for the first field, by the client's name for it, with a token outside [0, vocab_size)."""
    if isinstance(request.prompt, tuple):
        _check(request.names.input, request.prompt, vocab_size)
    _check(request.names.logit_bias, (token_id for token_id, _ in request.sampling.logit_bias), vocab_size)
    _check("stop_token_ids", request.stop_token_ids, vocab_size)


def _check(param: str, token_ids: Iterable[int], vocab_size: int) -> None:
    if any(not 0 <= token_id < vocab_size for token_id in token_ids):
        message = f"{param} holds a token id outside the model's vocabulary of {vocab_size} tokens"
        raise FieldError(param, message, reason="TOKEN_OUT_OF_RANGE")
