"""The sim runner is a pure function of the context in the KV slots it is shown."""

from pathlib import Path

from services.engine.runner import RunnerSettings, SamplingParams, SequenceSlice
from services.engine.sim_runner import SimRunner
from services.engine.token_bytes import TokenBytes
from services.kit.model_store import TOKENIZER
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
