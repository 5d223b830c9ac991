"""The figures that dashboards and autoscalers read, by exact name and type."""

from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from services.engine.attempt import Attempt
from services.engine.attempts import AttemptRequest
from services.engine.batch_load import BatchLoad
from services.engine.load import ReplicaLoad
from services.engine.metrics import EngineMetrics, LoadCollector
from services.engine.outcome import AttemptEnd, Counts, Failed, Finished
from services.engine.plan import StepEvents
from services.engine.reports import StepReport
from services.engine.sequence import EndReason


class Timed:
    """What the instruments read of an attempt."""

    request = AttemptRequest("a", "m", [1, 2, 3], max_output_tokens=16)
    started_s = 10.0
    begun_s: float | None = None
    first_token_s: float | None = None
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
    batch = BatchLoad(3, 4, 50, 16, 7, num_cached_blocks=20, num_evictions=5, num_cache_query_tokens=600, num_cache_hit_tokens=400)
    load = ReplicaLoad(batch, 2, 64, 8, 0.5, False, 900, 800)
    registry.register(LoadCollector(lambda: load, "m", block_size=16))
    assert value(registry, prefix + "num_requests_running") == 3
    assert value(registry, prefix + "num_requests_waiting") == 4 + 2
    assert value(registry, prefix + "kv_cache_usage_perc") == 0.25
    assert value(registry, prefix + "generation_tokens_total") == 900
    assert value(registry, prefix + "prompt_tokens_total") == 800
    assert value(registry, prefix + "num_preemptions_total") == 7
    assert value(registry, prefix + "prefix_cache_queries_total") == 600
    assert value(registry, prefix + "prefix_cache_hits_total") == 400
    assert value(registry, "inferway_engine_prefix_cache_evictions_total") == 5
    assert value(registry, "inferway_engine_num_cached_blocks") == 20
    assert value(registry, prefix + "cache_config_info", block_size="16", num_gpu_blocks="64") == 1


def test_latencies_are_shown_under_both_names(registry: CollectorRegistry) -> None:
    metrics = EngineMetrics(registry, "m")
    attempt = cast(Attempt, Timed())
    metrics.tokens(attempt, 1, 10.5)
    cast(Any, attempt).last_token_s = 10.5
    metrics.tokens(attempt, 1, 10.6)
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


def test_tokens_of_one_step_share_the_time_since_the_last_one(registry: CollectorRegistry) -> None:
    metrics = EngineMetrics(registry, "m")
    attempt = cast(Attempt, Timed())
    metrics.tokens(attempt, 3, 10.5)
    gaps = "inferway_engine_inter_token_latency_seconds"
    assert (value(registry, gaps + "_count"), value(registry, gaps + "_sum")) == (2, 0.0)
    cast(Any, attempt).last_token_s = 10.5
    metrics.tokens(attempt, 4, 11.5)
    assert (value(registry, gaps + "_count"), value(registry, gaps + "_sum")) == (2 + 4, 1.0)
    assert value(registry, gaps + "_bucket", le="0.25") == 6
    assert value(registry, "inferway_engine_time_to_first_token_seconds_count") == 1


def test_ends_are_counted_by_reason(registry: CollectorRegistry) -> None:
    metrics = EngineMetrics(registry, "m")
    attempt = cast(Attempt, Timed())
    for outcome in (Finished(EndReason.STOP, Counts()), Failed("STEP_FAILED", "", True)):
        metrics.ended(attempt, end(outcome), 11.0)
    metrics.refused("DRAINING")
    metrics.ended(attempt, end(Failed("NON_FINITE_LOGITS", "", False)), 11.0)
    assert value(registry, "inferway_engine_attempts_total", finished_reason="stop") == 1
    assert value(registry, "inferway_engine_attempts_total", finished_reason="step_failed") == 1
    assert value(registry, "vllm:request_success_total", finished_reason="stop") == 1
    assert value(registry, "vllm:request_success_total", finished_reason="step_failed") is None
    for prefix, refusals in (("inferway_engine_", "refusals_total"), ("vllm:", "admission_rejections_total")):
        assert value(registry, prefix + refusals, reason="DRAINING") == 1
        assert value(registry, prefix + "corrupted_requests_total") == 1


STAGES = {"queue": 0.5, "prefill": 0.25, "decode": 2.0, "inference": 2.25}


@pytest.mark.parametrize(
    ("times", "seen"),
    [({}, set()), ({"begun_s": 10.5}, {"queue"}), ({"begun_s": 10.5, "first_token_s": 10.75, "last_token_s": 12.75}, set(STAGES))],
)
def test_stages_of_an_attempt_are_timed_as_far_as_it_came(registry: CollectorRegistry, times: dict[str, float], seen: set[str]) -> None:
    metrics, attempt = EngineMetrics(registry, "m"), Timed()
    for name, at_s in times.items():
        setattr(attempt, name, at_s)
    metrics.ended(cast(Attempt, attempt), end(Finished(EndReason.CANCELLED, Counts())), 13.0)
    for stage, duration_s in STAGES.items():
        for name in (f"inferway_engine_{stage}_time_seconds", f"vllm:request_{stage}_time_seconds"):
            assert value(registry, name + "_count") == (1 if stage in seen else 0)
            assert value(registry, name + "_sum") == (duration_s if stage in seen else 0)


def test_sizes_of_an_attempt_are_shown_under_both_names(registry: CollectorRegistry) -> None:
    metrics = EngineMetrics(registry, "m")
    metrics.ended(cast(Attempt, Timed()), end(Finished(EndReason.STOP, Counts(prompt_tokens=3, output_tokens=5))), 13.0)
    for name, size in (("prompt_tokens", 3), ("generation_tokens", 5), ("max_tokens", 16)):
        assert value(registry, f"inferway_engine_request_{name}_sum") == size
    for name, size in (("prompt_tokens", 3), ("generation_tokens", 5), ("params_max_tokens", 16)):
        assert value(registry, f"vllm:request_{name}_sum") == size


def test_failed_runs_are_counted(registry: CollectorRegistry) -> None:
    metrics = EngineMetrics(registry, "m")
    metrics.step(StepReport(1, num_tokens=1, num_failed_runs=3))
    metrics.step(StepReport(2, num_tokens=1))
    assert value(registry, "inferway_engine_failed_runs_total") == 3


def test_drafts_are_counted_under_both_names(registry: CollectorRegistry) -> None:
    metrics = EngineMetrics(registry, "m")
    assert value(registry, "vllm:spec_decode_num_drafts_total") == 0
    for events in (
        StepEvents(num_drafts=2, num_draft_tokens=9, num_accepted_tokens=5),
        StepEvents(),
        StepEvents(num_drafts=1, num_draft_tokens=2),
    ):
        metrics.step(StepReport(1, events, num_tokens=12))
    for prefix in ("inferway_engine_", "vllm:"):
        found = [value(registry, f"{prefix}spec_decode_num_{name}_total") for name in ("drafts", "draft_tokens", "accepted_tokens")]
        assert found == [3, 11, 5]


def test_turns_without_a_step_are_no_steps(registry: CollectorRegistry) -> None:
    metrics = EngineMetrics(registry, "m")
    metrics.step(StepReport(1))
    metrics.step(StepReport(1, num_tokens=17, duration_s=0.02))
    assert value(registry, "inferway_engine_step_tokens_count") == 1
    assert value(registry, "vllm:iteration_tokens_total_sum") == 17
