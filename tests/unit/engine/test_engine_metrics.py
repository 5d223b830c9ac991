"""The figures that dashboards and autoscalers read, by exact name and type."""

from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from services.engine.attempt import Attempt
from services.engine.batcher import BatchLoad
from services.engine.load import ReplicaLoad
from services.engine.metrics import EngineMetrics, LoadCollector
from services.engine.outcome import AttemptEnd, Counts, Failed, Finished
from services.engine.reports import StepReport
from services.engine.sequence import EndReason


class Timed:
    """What the instruments read of an attempt."""

    started_s = 10.0
    last_token_s: float | None = None


def end(outcome: Finished | Failed) -> AttemptEnd:
    return AttemptEnd("a", "c", "r", "t", outcome, 1, 2)


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(name, {"model_name": "m", **labels})


@pytest.mark.parametrize("prefix", ["vllm:", "inferway_engine_"])
def test_load_is_shown_under_both_names(registry: CollectorRegistry, prefix: str) -> None:
    load = ReplicaLoad(BatchLoad(3, 4, 50, 16, 7), 2, 64, 8, 0.5, False, 900, 800)
    registry.register(LoadCollector(lambda: load, "m", block_size=16))
    assert value(registry, prefix + "num_requests_running") == 3
    assert value(registry, prefix + "num_requests_waiting") == 4 + 2
    assert value(registry, prefix + "kv_cache_usage_perc") == 0.25
    assert value(registry, prefix + "generation_tokens_total") == 900
    assert value(registry, prefix + "prompt_tokens_total") == 800
    assert value(registry, prefix + "num_preemptions_total") == 7
    assert value(registry, prefix + "cache_config_info", block_size="16", num_gpu_blocks="64") == 1


def test_latencies_are_shown_under_both_names(registry: CollectorRegistry) -> None:
    metrics = EngineMetrics(registry, "m")
    attempt = cast(Attempt, Timed())
    metrics.token(attempt, 10.5)
    cast(Any, attempt).last_token_s = 10.5
    metrics.token(attempt, 10.6)
    metrics.ended(attempt, end(Finished(EndReason.LENGTH, Counts(discarded_tokens=9))), 12.0)
    for ours, alias in (
        ("inferway_engine_time_to_first_token_seconds", "vllm:time_to_first_token_seconds"),
        ("inferway_engine_inter_token_latency_seconds", "vllm:inter_token_latency_seconds"),
        ("inferway_engine_request_duration_seconds", "vllm:e2e_request_latency_seconds"),
    ):
        assert value(registry, ours + "_count") == 1
        assert value(registry, alias + "_count") == 1
        assert value(registry, alias + "_sum") == value(registry, ours + "_sum")
    assert value(registry, "vllm:time_to_first_token_seconds_sum") == 0.5
    assert value(registry, "inferway_engine_discarded_tokens_total") == 9


def test_ends_are_counted_by_reason(registry: CollectorRegistry) -> None:
    metrics = EngineMetrics(registry, "m")
    attempt = cast(Attempt, Timed())
    for outcome in (Finished(EndReason.STOP, Counts()), Failed("STEP_FAILED", "", True)):
        metrics.ended(attempt, end(outcome), 11.0)
    metrics.refused("DRAINING")
    assert value(registry, "inferway_engine_attempts_total", finished_reason="stop") == 1
    assert value(registry, "inferway_engine_attempts_total", finished_reason="step_failed") == 1
    assert value(registry, "vllm:request_success_total", finished_reason="stop") == 1
    assert value(registry, "vllm:request_success_total", finished_reason="step_failed") is None
    assert value(registry, "inferway_engine_refusals_total", reason="DRAINING") == 1


def test_turns_without_a_step_are_no_steps(registry: CollectorRegistry) -> None:
    metrics = EngineMetrics(registry, "m")
    metrics.step(StepReport(1))
    metrics.step(StepReport(1, num_tokens=17, duration_s=0.02))
    assert value(registry, "inferway_engine_step_tokens_count") == 1
    assert value(registry, "vllm:iteration_tokens_total_sum") == 17
