"""What a replica refuses before the batch, each with a typed error that names the field and quotes nothing."""

from dataclasses import replace
from typing import Any

import pytest

from services.engine.attempts import AttemptRequest, AttemptRules
from services.engine.runner import SamplingParams
from services.kit.errors import ContextLengthExceeded, FieldError, InferwayError, InvalidArgument, NotFound

RULES = AttemptRules("m", vocab_size=100, max_context_tokens=64)
NAN, INF = float("nan"), float("inf")


def request(**fields: Any) -> AttemptRequest:
    return replace(AttemptRequest("a", "m", [1, 2], 10), **fields)


def sampling(**fields: Any) -> AttemptRequest:
    return request(sampling=SamplingParams(**fields))


@pytest.mark.parametrize(
    "asked",
    [
        request(),
        request(prompt_token_ids=[0, 99], max_output_tokens=62),
        request(min_output_tokens=10, stop_token_ids=[99] * 16, include_stop=True, ignore_eos=True),
        request(num_logprobs=0, num_prompt_logprobs=20),
        request(num_logprobs=20, stop=["x"] * 16, cache_salt=b"s" * 64, choice=2**32 - 1),
        request(delivered_token_ids=[5] * 10),
        sampling(temperature=0, top_p=1e-9, top_k=2**32 - 1, min_p=1, seed=-(2**63)),
        sampling(temperature=2, repetition_penalty=2, frequency_penalty=-2, presence_penalty=2, seed=2**63 - 1),
        sampling(repetition_penalty=5e-324, logit_bias=((0, -100), (99, 100), (5, 0.5))),
        sampling(logit_bias=()),
    ],
)
def test_check_what_is_in_range_passes(asked: AttemptRequest) -> None:
    RULES.check(asked)


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        (request(attempt_id=""), "attempt_id"),
        (request(attempt_id="x" * 129), "attempt_id"),
        (request(request_id="x" * 129), "request_id"),
        (request(prompt_token_ids=[]), "prompt_token_ids"),
        (request(max_output_tokens=0), "max_output_tokens"),
        (request(max_output_tokens=-1), "max_output_tokens"),
        (request(delivered_token_ids=[5] * 11), "delivered_token_ids"),
        (request(cache_salt=b"s" * 65), "cache_salt"),
        (request(choice=-1), "choice"),
        (request(choice=2**32), "choice"),
        (request(min_output_tokens=11), "min_output_tokens"),
        (request(min_output_tokens=-1), "min_output_tokens"),
        (request(stop=["x"] * 17), "stop"),
        (request(stop=["x", ""]), "stop"),
        (request(stop_token_ids=[5] * 17), "stop_token_ids"),
        (request(num_logprobs=21), "num_logprobs"),
        (request(num_logprobs=-1), "num_logprobs"),
        (request(num_prompt_logprobs=21), "num_prompt_logprobs"),
        (request(num_prompt_logprobs=2**32 - 1), "num_prompt_logprobs"),
        *((sampling(temperature=value), "sampling.temperature") for value in (NAN, INF, -INF, -0.1, 2.1)),
        *((sampling(top_p=value), "sampling.top_p") for value in (NAN, INF, 0, -0.5, 1.01)),
        (sampling(top_k=-1), "sampling.top_k"),
        *((sampling(min_p=value), "sampling.min_p") for value in (NAN, INF, -0.1, 1.1)),
        *((sampling(repetition_penalty=value), "sampling.repetition_penalty") for value in (NAN, INF, 0, -1, 2.1)),
        *((sampling(frequency_penalty=value), "sampling.frequency_penalty") for value in (NAN, INF, -2.1, 2.1)),
        *((sampling(presence_penalty=value), "sampling.presence_penalty") for value in (NAN, -INF, -2.1, 2.1)),
        *((sampling(seed=value), "sampling.seed") for value in (2**63, -(2**63) - 1)),
        *((sampling(logit_bias=((5, value),)), "sampling.logit_bias") for value in (NAN, INF, -INF, 100.5, -101)),
        (sampling(logit_bias=((5, 1.0), (6, 1.0), (5, 2.0))), "sampling.logit_bias"),
        (sampling(logit_bias=((5, 1.0),) * 1025), "sampling.logit_bias"),
        (sampling(logit_bias=((5, 1.0),) * 100_000), "sampling.logit_bias"),
    ],
)
def test_check_what_is_out_of_range_is_refused_by_name(asked: AttemptRequest, param: str) -> None:
    with pytest.raises(FieldError) as caught:
        RULES.check(asked)
    assert (caught.value.reason, caught.value.metadata["param"]) == ("INVALID_FIELD", param)


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        (request(prompt_token_ids=[1, 100]), "prompt_token_ids"),
        (request(prompt_token_ids=[-1]), "prompt_token_ids"),
        (request(delivered_token_ids=[100]), "delivered_token_ids"),
        (request(stop_token_ids=[100]), "stop_token_ids"),
        (request(stop_token_ids=[2**32 - 1]), "stop_token_ids"),
        (sampling(logit_bias=((100, 1.0),)), "sampling.logit_bias"),
        (sampling(logit_bias=((-1, 1.0),)), "sampling.logit_bias"),
    ],
)
def test_check_token_outside_the_vocabulary_is_refused(asked: AttemptRequest, param: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        RULES.check(asked)
    assert (caught.value.reason, caught.value.metadata) == ("TOKEN_OUT_OF_RANGE", {"vocab_size": "100", "param": param})


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (request(model="other"), NotFound),
        (request(prompt_token_ids=[1] * 55), ContextLengthExceeded),
        (request(max_output_tokens=2**32 - 1), ContextLengthExceeded),
    ],
)
def test_check_other_refusals_are_typed(asked: AttemptRequest, error: type[InferwayError]) -> None:
    with pytest.raises(error):
        RULES.check(asked)
