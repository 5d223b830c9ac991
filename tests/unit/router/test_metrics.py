"""Metrics follow admission and the view, with bounded labels."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from services.router.metrics import RouterMetrics
from services.router.snapshot import ReplicaState
from tests.harness.router_parts import MODEL, AdmissionBench, facts, load


def sample(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"inferway_router_{name}", {"model": MODEL, **labels})


def test_metrics_count_what_admission_tells() -> None:
    registry = CollectorRegistry()
    metrics = RouterMetrics(registry)
    metrics.granted(MODEL, 0.2)
    metrics.rejected(MODEL, "QUEUE_FULL")
    metrics.queue_depth(MODEL, 7)
    metrics.first_token(MODEL, 0.4)
    assert sample(registry, "queue_wait_seconds_count") == 1
    assert sample(registry, "rejects_total", reason="QUEUE_FULL") == 1
    assert sample(registry, "queue_depth") == 7
    assert sample(registry, "first_token_seconds_sum") == 0.4


def test_metrics_replicas_by_state() -> None:
    registry, bench = CollectorRegistry(), AdmissionBench()
    RouterMetrics(registry).follow(bench.view)
    bench.up("a")
    bench.view.report("a", load(num_running=3))
    bench.view.register(facts("b"))
    bench.view.register(facts("c", state=ReplicaState.STARTING))
    bench.view.register(facts("d", state=ReplicaState.DRAINING))
    states = ("ready", "starting", "draining", "disconnected")
    assert [sample(registry, "replicas", state=state) for state in states] == [1, 1, 1, 1]
    assert sample(registry, "in_flight") == 3
    bench.view.remove("a")
    assert sample(registry, "replicas", state="ready") == 0


def test_metrics_models_beyond_the_bound_share_a_label() -> None:
    registry = CollectorRegistry()
    metrics = RouterMetrics(registry)
    for number in range(100):
        metrics.queue_depth(f"model-{number}", 1)
    depths = [metric for metric in registry.collect() if metric.name == "inferway_router_queue_depth"]
    assert len(depths[0].samples) == 65
