"""The sim runner is a pure function of the context in the KV slots it is shown."""

import math
from pathlib import Path

from services.engine.runner import RunnerSettings, SamplingParams, SequenceSlice
from services.engine.sim_runner import SimRunner
from services.engine.token_bytes import TokenBytes
from services.kit.model_store import TOKENIZER
from tests.harness.batching import EOS as EOS_OF_SIM
from tests.harness.batching import sim_runner
from tests.harness.tiny_model import EOS, NAME, write_tiny_model

GREEDY = SamplingParams(temperature=0)


def part(token_ids: list[int], start: int, table: list[int], sampling: SamplingParams = GREEDY, **fields: int) -> SequenceSlice:
    return SequenceSlice(1, token_ids, start, table, sampling, samples=True, **fields)


def test_step_chunks_and_blocks_do_not_change_the_token() -> None:
    runner = sim_runner(block_size=4)
    (whole,) = runner.step([part([5, 6, 7, 8, 9, 10], 0, [3, 1])])
    runner.step([part([5, 6, 7], 0, [7, 9])])
    (chunked,) = runner.step([part([8, 9, 10], 3, [7, 9])])
    assert whole.token_id == chunked.token_id


def test_step_sees_a_block_that_was_overwritten() -> None:
    runner = sim_runner(block_size=4)
    runner.step([part([5, 6, 7], 0, [2])])
    (right,) = runner.step([part([8], 3, [2])])
    runner.step([part([9, 9, 9], 0, [2])])
    (wrong,) = runner.step([part([8], 3, [2])])
    assert right.token_id != wrong.token_id


def test_step_greedy_ignores_the_seed_and_sampling_does_not() -> None:
    runner = sim_runner()
    tokens = {runner.step([part([5], 0, [0], SamplingParams(temperature=0, seed=seed))])[0].token_id for seed in range(5)}
    drawn = {runner.step([part([5], 0, [0], SamplingParams(temperature=1, seed=seed))])[0].token_id for seed in range(5)}
    assert (len(tokens), len(drawn) > 1) == (1, True)


def test_load_takes_limits_and_whole_characters_from_the_store(tmp_path: Path) -> None:
    version = write_tiny_model(tmp_path)
    runner = SimRunner.load(RunnerSettings(NAME, home=tmp_path, sim_step_ms=0, num_blocks=9, block_size=2))
    assert (runner.info.num_blocks, runner.info.max_context_tokens, runner.info.eos_token_ids) == (9, version.max_context_tokens, {EOS})
    vocabulary = TokenBytes.from_json(version.read(TOKENIZER))
    for token in range(2, 200):
        (output,) = runner.step([part([token], 0, [0])])
        assert output.token_id is not None
        assert vocabulary[output.token_id].decode()


def test_step_obeys_bans_and_biases_of_a_hundred() -> None:
    runner = sim_runner(eos_every=1)

    def token(**fields: object) -> int | None:
        return runner.step([SequenceSlice(1, [5], 0, [0], samples=True, **fields)])[0].token_id  # type: ignore[arg-type]

    assert token(sampling=GREEDY) == EOS_OF_SIM
    plain = token(sampling=GREEDY, forbidden=frozenset({EOS_OF_SIM}))
    assert plain not in (EOS_OF_SIM, None)
    assert token(sampling=SamplingParams(temperature=0, logit_bias=((77, 100.0),))) == 77
    assert token(sampling=SamplingParams(temperature=0, logit_bias=((EOS_OF_SIM, -100.0),))) == plain
    every = frozenset(range(200)) - {9}
    assert token(sampling=SamplingParams(temperature=0, logit_bias=((77, 100.0),)), forbidden=every) == 9


def test_step_log_probabilities_are_a_pure_function_of_the_context_and_sum_to_less_than_one() -> None:
    runner = sim_runner(block_size=4)
    context = [5, 6, 7, 8, 9]
    whole = SequenceSlice(1, context, 0, [3, 1], GREEDY, True, context=context, num_prompt=5, num_logprobs=4, num_prompt_logprobs=20)
    (output,) = runner.step([whole])
    assert output.logprobs is not None
    assert (output.logprobs.token_id, len(output.logprobs.top)) == (output.token_id, 4)
    assert [each.token_id for each in output.prompt_logprobs] == context[1:]
    for each in (*output.prompt_logprobs, output.logprobs):
        assert each.top[0] == (each.token_id, each.logprob)
        assert [logprob for _, logprob in each.top] == sorted((logprob for _, logprob in each.top), reverse=True)
        assert sum(math.exp(logprob) for _, logprob in each.top) < 1
        assert len({token for token, _ in each.top}) == len(each.top)
    pieces = [SequenceSlice(1, context[a:b], a, [7, 9], GREEDY, b == 5, 0, 0, context, 5, frozenset(), 4, 20) for a, b in ((0, 2), (2, 5))]
    found = [runner.step([piece])[0] for piece in pieces]
    assert [each for piece in found for each in piece.prompt_logprobs] == output.prompt_logprobs
    assert found[1].logprobs == output.logprobs
