"""Stop tokens, least lengths, kept stops, bans and log-probabilities on loopback, with a runner whose numbers are made up."""

import math
from pathlib import Path
from typing import Any

import pytest

from inferway.engine.v1 import engine_pb2
from services.engine.token_bytes import TokenBytes
from services.kit.model_store import TOKENIZER, ModelStore
from tests.harness.engine import GatewayStub, Running, running_engine
from tests.harness.tiny_model import EOS, NAME


@pytest.fixture
def vocabulary(running: Running) -> TokenBytes:
    return TokenBytes.from_json(ModelStore(Path(running[0].config.home)).get(NAME).read(TOKENIZER))


def text_of(vocabulary: TokenBytes, token_ids: list[int]) -> str:
    return b"".join(vocabulary[token_id] for token_id in token_ids).decode()


def sampling(**fields: Any) -> dict[str, Any]:
    return {"sampling": engine_pb2.AttemptSampling(**{"temperature": 0, "top_p": 1, "seed": 1, **fields})}


async def test_stop_token_ends_the_answer_and_is_no_part_of_it(gateway: GatewayStub, vocabulary: TokenBytes) -> None:
    whole = await gateway.run("whole", max_output_tokens=20)
    stop = whole.token_ids[7]
    cut = whole.token_ids.index(stop)
    heard = await gateway.run("stopped", max_output_tokens=20, stop_token_ids=[EOS, stop])
    assert heard.finished is not None
    assert (heard.token_ids, heard.text) == (whole.token_ids[:cut], text_of(vocabulary, whole.token_ids[:cut]))
    assert (heard.finished.reason, heard.finished.matched_stop_token_id) == (engine_pb2.FINISH_REASON_STOP, stop)
    assert heard.finished.counts.output_tokens == cut
    assert whole.finished is not None
    assert not whole.finished.HasField("matched_stop_token_id")


async def test_stop_token_that_is_kept_is_in_the_text_only(gateway: GatewayStub, vocabulary: TokenBytes) -> None:
    whole = await gateway.run("whole", max_output_tokens=20)
    stop = whole.token_ids[7]
    cut = whole.token_ids.index(stop)
    held_back = [text_of(vocabulary, whole.token_ids[cut - 1 : cut]) + "\x00"]
    heard = await gateway.run("kept", max_output_tokens=20, stop_token_ids=[stop], include_stop=True, stop=held_back)
    assert heard.finished is not None
    assert (heard.token_ids, heard.text) == (whole.token_ids[:cut], text_of(vocabulary, whole.token_ids[: cut + 1]))
    assert heard.finished.matched_stop_token_id == stop


async def test_stop_string_that_is_kept_is_the_end_of_the_text(gateway: GatewayStub) -> None:
    whole = await gateway.run("whole", max_output_tokens=60)
    stop = whole.text[20:23]
    heard = await gateway.run("kept", max_output_tokens=60, stop=[stop], include_stop=True)
    assert heard.finished is not None
    assert heard.text == whole.text[: whole.text.index(stop) + len(stop)]
    assert heard.finished.matched_stop == stop


async def test_end_of_sequence_is_not_a_stop_token_of_the_request(tmp_path: Path) -> None:
    async with running_engine(tmp_path / "other", sim_eos_every=1) as (_, channel):
        gateway = await GatewayStub(channel).hello()
        heard = await gateway.run("a")
        assert heard.finished is not None
        assert (heard.token_ids, heard.finished.reason) == ([], engine_pb2.FINISH_REASON_STOP)
        assert not heard.finished.HasField("matched_stop_token_id")
        named = await gateway.run("b", stop_token_ids=[EOS])
        assert named.finished is not None
        assert named.finished.matched_stop_token_id == EOS
        at_least = await gateway.run("c", min_output_tokens=5)
        assert len(at_least.token_ids) == 5


async def test_nothing_ends_the_answer_before_its_least_length(gateway: GatewayStub) -> None:
    whole = await gateway.run("whole", max_output_tokens=60)
    character = whole.text[2]
    heard = await gateway.run("long", max_output_tokens=60, stop=[character], min_output_tokens=30)
    early = await gateway.run("early", max_output_tokens=60, stop=[character])
    assert len(early.token_ids) <= 3 < 30 < len(heard.token_ids)
    stop = whole.token_ids[2]
    banned = await gateway.run("banned", max_output_tokens=60, stop_token_ids=[stop], min_output_tokens=30)
    assert len(banned.token_ids) >= 30
    assert stop not in banned.token_ids


async def test_bias_of_a_hundred_decides_every_token(gateway: GatewayStub) -> None:
    bias = [engine_pb2.LogitBias(token_id=70, bias=100), engine_pb2.LogitBias(token_id=71, bias=-100)]
    heard = await gateway.run("a", **sampling(logit_bias=bias))
    assert heard.token_ids == [70] * 8


@pytest.mark.parametrize("num_top", [0, 3])
async def test_log_probabilities_come_one_per_token_with_its_bytes(gateway: GatewayStub, vocabulary: TokenBytes, num_top: int) -> None:
    heard = await gateway.run("a", num_logprobs=num_top, num_prompt_logprobs=num_top, max_output_tokens=20)
    assert [each.chosen.token_id for each in heard.logprobs] == heard.token_ids
    assert [each.chosen.token_id for each in heard.prompt_logprobs] == [20, 30]
    for each in (*heard.logprobs, *heard.prompt_logprobs):
        assert each.chosen.token == vocabulary[each.chosen.token_id]
        assert each.chosen.logprob == pytest.approx(math.log(0.5))
        assert len(each.top) == num_top
        assert all(top.token == vocabulary[top.token_id] for top in each.top)


async def test_log_probabilities_that_nobody_asked_for_do_not_come(gateway: GatewayStub) -> None:
    heard = await gateway.run("a")
    assert (heard.logprobs, heard.prompt_logprobs) == ([], [])


async def test_log_probabilities_of_a_long_prompt_in_chunks_come_in_order_before_the_first_token(tmp_path: Path) -> None:
    prompt = [2 + (at * 7) % 250 for at in range(200)]
    async with running_engine(tmp_path / "other", max_step_tokens=48, max_num_sequences=8) as (_, channel):
        gateway = await GatewayStub(channel).hello()
        await gateway.start("mate", prompt_token_ids=prompt[::-1], max_output_tokens=30)
        heard = await gateway.run("a", prompt_token_ids=prompt, num_prompt_logprobs=1)
        assert [each.chosen.token_id for each in heard.prompt_logprobs] == prompt[1:]
        resumed = await gateway.run("b", prompt_token_ids=prompt, num_prompt_logprobs=1, delivered_token_ids=heard.token_ids[:2])
        assert resumed.prompt_logprobs == []
        assert heard.token_ids[:2] + resumed.token_ids == heard.token_ids


async def test_resume_keeps_log_probabilities_aligned_with_the_new_tokens(gateway: GatewayStub) -> None:
    whole = await gateway.run("whole", num_logprobs=2, max_output_tokens=20)
    resumed = await gateway.run("resumed", num_logprobs=2, max_output_tokens=20, delivered_token_ids=whole.token_ids[:9])
    assert resumed.token_ids == whole.token_ids[9:]
    assert resumed.logprobs == whole.logprobs[9:]


@pytest.mark.parametrize(
    "fields",
    [
        sampling(min_p=1.5),
        sampling(min_p=float("nan")),
        sampling(repetition_penalty=-1),
        sampling(frequency_penalty=3),
        sampling(presence_penalty=float("inf")),
        sampling(logit_bias=[engine_pb2.LogitBias(token_id=5, bias=float("nan"))]),
        sampling(logit_bias=[engine_pb2.LogitBias(token_id=5, bias=101)]),
        sampling(logit_bias=[engine_pb2.LogitBias(token_id=5, bias=1)] * 2),
        sampling(logit_bias=[engine_pb2.LogitBias(token_id=token, bias=1) for token in range(100_000)]),
        {"min_output_tokens": 9},
        {"stop_token_ids": [5] * 17},
        {"num_logprobs": 21},
        {"num_prompt_logprobs": 21},
        {"cache_salt": b"x" * 65},
    ],
)
async def test_field_out_of_range_is_a_typed_refusal(gateway: GatewayStub, fields: dict[str, Any]) -> None:
    heard = await gateway.run("bad", **fields)
    assert heard.failed is not None
    assert (heard.failed.reason, heard.failed.retryable) == ("INVALID_FIELD", False)
    assert (await gateway.run("good", **sampling(repetition_penalty=0))).finished is not None
