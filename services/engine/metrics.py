"""All instruments of a replica: our own names, and the `vllm:` names that dashboards and autoscalers know.

Observed in the event loop from reports; gauges are read when somebody scrapes. The step thread touches none of them.
"""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from services.engine.attempt import Attempt
from services.engine.load import ReplicaLoad
from services.engine.outcome import AttemptEnd, Failed
from services.engine.reports import StepReport
from services.kit.metrics import LATENCY_BUCKETS_S

_ALIASES = {
    "inferway_engine_time_to_first_token_seconds": "vllm:time_to_first_token_seconds",
    "inferway_engine_inter_token_latency_seconds": "vllm:inter_token_latency_seconds",
    "inferway_engine_request_duration_seconds": "vllm:e2e_request_latency_seconds",
    "inferway_engine_step_tokens": "vllm:iteration_tokens_total",
}
_TOKEN_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)


class EngineMetrics:
    """Counts attempts, tokens and steps; see Observer."""

    def __init__(self, registry: CollectorRegistry, model: str) -> None:
        self._model = model

        def histogram(name: str, text: str, buckets: tuple[float, ...] = LATENCY_BUCKETS_S) -> Histogram:
            return Histogram(f"inferway_engine_{name}", text, ["model_name"], buckets=buckets, registry=registry)

        self.ttft = histogram("time_to_first_token_seconds", "From acceptance of an attempt to its first token")
        self.itl = histogram("inter_token_latency_seconds", "Between two tokens of an attempt")
        self.duration = histogram("request_duration_seconds", "From acceptance of an attempt to its recorded end")
        self.step_duration = histogram("step_duration_seconds", "Time in the runner per step")
        self.step_tokens = histogram("step_tokens", "Tokens computed per step", _TOKEN_BUCKETS)
        self.refusals = Counter("inferway_engine_refusals", "Attempts not accepted", ["model_name", "reason"], registry=registry)
        self.finishes = Counter("inferway_engine_attempts", "Attempts that ended", ["model_name", "finished_reason"], registry=registry)
        self.successes = Counter(
            "vllm:request_success", "Attempts that ended by themselves", ["model_name", "finished_reason"], registry=registry
        )
        self.discarded = Counter("inferway_engine_discarded_tokens", "Tokens thrown away", ["model_name"], registry=registry)
        registry.register(_Aliases([self.ttft, self.itl, self.duration, self.step_tokens]))

    def step(self, report: StepReport) -> None:
        """See Observer."""
        if report.num_tokens:
            self.step_duration.labels(self._model).observe(report.duration_s)
            self.step_tokens.labels(self._model).observe(report.num_tokens)

    def token(self, attempt: Attempt, now_s: float) -> None:
        """See Observer."""
        if attempt.last_token_s is None:
            self.ttft.labels(self._model).observe(now_s - attempt.started_s)
        else:
            self.itl.labels(self._model).observe(now_s - attempt.last_token_s)

    def refused(self, reason: str) -> None:
        """See Observer."""
        self.refusals.labels(self._model, reason).inc()

    def ended(self, attempt: Attempt, end: AttemptEnd, now_s: float) -> None:
        """See Observer."""
        outcome = end.outcome
        reason = outcome.reason.lower() if isinstance(outcome, Failed) else outcome.reason.value
        self.finishes.labels(self._model, reason).inc()
        if reason in ("stop", "length"):
            self.successes.labels(self._model, reason).inc()
        self.discarded.labels(self._model).inc(outcome.counts.discarded_tokens)
        self.duration.labels(self._model).observe(now_s - attempt.started_s)


class LoadCollector(Collector):
    """Gauges and totals of the load, measured at each scrape."""

    def __init__(self, measure: Callable[[], ReplicaLoad], model: str, block_size: int) -> None:
        self._measure = measure
        self._model = model
        self._block_size = block_size

    def collect(self) -> Iterator[Metric]:
        """See Collector."""
        load = self._measure()
        usage = load.batch.num_used_blocks / load.num_blocks
        for prefix in ("inferway_engine_", "vllm:"):
            yield self._gauge(prefix + "num_requests_running", "Sequences in the batch", load.batch.num_running)
            yield self._gauge(prefix + "num_requests_waiting", "Attempts that wait inside the engine", load.num_waiting)
            yield self._gauge(prefix + "kv_cache_usage_perc", "KV blocks in use, from 0 to 1", usage)
            yield self._counter(prefix + "prompt_tokens", "Prompt tokens of attempts", load.prompt_tokens_total)
            yield self._counter(prefix + "generation_tokens", "Output tokens that count", load.output_tokens_total)
            yield self._counter(prefix + "num_preemptions", "Sequences preempted for KV blocks", load.batch.num_preemptions)
            yield self._cache_config(prefix + "cache_config_info", load.num_blocks)
        yield self._gauge("inferway_engine_heartbeat_age_seconds", "Since the step loop came round", load.heartbeat_age_s)

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(name, text, labels=["model_name"])
        family.add_metric([self._model], value)
        return family

    def _counter(self, name: str, text: str, value: float) -> Metric:
        family = CounterMetricFamily(name, text, labels=["model_name"])
        family.add_metric([self._model], value)
        return family

    def _cache_config(self, name: str, num_blocks: int) -> Metric:
        family = GaugeMetricFamily(name, "Size of the KV cache", labels=["model_name", "block_size", "num_gpu_blocks"])
        family.add_metric([self._model, str(self._block_size), str(num_blocks)], 1)
        return family


class _Aliases(Collector):
    """Shows histograms a second time under the name that others expect."""

    def __init__(self, histograms: list[Histogram]) -> None:
        self._histograms = histograms

    def collect(self) -> Iterator[Metric]:
        """See Collector."""
        for metric in (metric for histogram in self._histograms for metric in histogram.collect()):
            alias = Metric(_ALIASES[metric.name], metric.documentation, metric.type)
            for sample in metric.samples:
                alias.samples.append(sample._replace(name=sample.name.replace(metric.name, alias.name, 1)))
            yield alias
