"""The gateway's instruments count what was settled, under labels that clients cannot invent."""

from services.gateway.metrics import GatewayMetrics
from services.gateway.request_log import RequestLog
from services.kit.errors import NotFound
from services.kit.metrics import new_registry
from tests.harness.gateway_bench import Bench, read, refused, says


async def test_metrics_settled_requests_count_outcome_tokens_and_ttft(bench: Bench) -> None:
    registry = new_registry()
    bench.meter = RequestLog(GatewayMetrics(registry))  # type: ignore[assignment]
    bench.replicas.scripts = [says("a", "b"), lambda attempt: attempt.fail("STEP_FAILED")]
    await read(bench.start())
    await refused(bench.start())
    labels = {"model": "m", "surface": "grpc"}
    count = registry.get_sample_value
    assert count("inferway_gateway_settled_requests_total", {**labels, "outcome": "finished", "reason": "stop"}) == 1
    assert count("inferway_gateway_settled_requests_total", {**labels, "outcome": "failed", "reason": "STEP_FAILED"}) == 1
    assert count("inferway_gateway_billed_tokens_total", {"model": "m", "kind": "completion"}) == 2
    assert count("inferway_gateway_billed_tokens_total", {"model": "m", "kind": "prompt"}) == 4
    assert count("inferway_gateway_ttft_seconds_count", {"model": "m"}) == 1


async def test_metrics_unknown_models_and_bad_keys_make_no_series_of_their_own(bench: Bench) -> None:
    registry = new_registry()
    bench.meter = RequestLog(GatewayMetrics(registry))  # type: ignore[assignment]
    for number in range(20):
        assert isinstance(await refused(bench.start(model=f"guess-{number}")), NotFound)
    await refused(bench.start(credentials="bad"))
    samples = [
        sample for metric in registry.collect() for sample in metric.samples if sample.name == "inferway_gateway_refused_requests_total"
    ]
    assert {(sample.labels["reason"], sample.value) for sample in samples} == {("MODEL_NOT_FOUND", 20.0), ("INVALID_API_KEY", 1.0)}
