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
    "inferway_engine_queue_time_seconds": "vllm:request_queue_time_seconds",
    "inferway_engine_prefill_time_seconds": "vllm:request_prefill_time_seconds",
    "inferway_engine_decode_time_seconds": "vllm:request_decode_time_seconds",
    "inferway_engine_inference_time_seconds": "vllm:request_inference_time_seconds",
    "inferway_engine_request_prompt_tokens": "vllm:request_prompt_tokens",
    "inferway_engine_request_generation_tokens": "vllm:request_generation_tokens",
    "inferway_engine_request_max_tokens": "vllm:request_params_max_tokens",
    "inferway_engine_spec_decode_num_drafts": "vllm:spec_decode_num_drafts",
    "inferway_engine_spec_decode_num_draft_tokens": "vllm:spec_decode_num_draft_tokens",
    "inferway_engine_spec_decode_num_accepted_tokens": "vllm:spec_decode_num_accepted_tokens",
    "inferway_engine_refusals": "vllm:admission_rejections",
    "inferway_engine_corrupted_requests": "vllm:corrupted_requests",
}
_TOKEN_BUCKETS = tuple(1 << power for power in range(18))


class EngineMetrics:
    """Counts attempts, tokens and steps; see Observer."""

    def __init__(self, registry: CollectorRegistry, model: str) -> None:
        self._model = model

        def histogram(name: str, text: str, buckets: tuple[float, ...] = LATENCY_BUCKETS_S) -> Histogram:
            made = Histogram(f"inferway_engine_{name}", text, ["model_name"], buckets=buckets, registry=registry)
            made.labels(model)  # Shown from the start, as 0.
            return made

        def counter(name: str, text: str, *labels: str) -> Counter:
            made = Counter(name, text, ["model_name", *labels], registry=registry)
            if not labels:
                made.labels(model)
            return made

        self.ttft = histogram("time_to_first_token_seconds", "From acceptance of an attempt to its first token")
        self.itl = histogram("inter_token_latency_seconds", "Between two tokens of an attempt")
        self.duration = histogram("request_duration_seconds", "From acceptance of an attempt to its recorded end")
        self.queue = histogram("queue_time_seconds", "From acceptance of an attempt to its first step")
        self.prefill = histogram("prefill_time_seconds", "From the first step of an attempt to its first token")
        self.decode = histogram("decode_time_seconds", "From the first token of an attempt to its last")
        self.inference = histogram("inference_time_seconds", "From the first step of an attempt to its last token")
        self.prompt_tokens = histogram("request_prompt_tokens", "Prompt tokens per attempt", _TOKEN_BUCKETS)
        self.generation_tokens = histogram("request_generation_tokens", "Output tokens that count per attempt", _TOKEN_BUCKETS)
        self.max_tokens = histogram("request_max_tokens", "Most output tokens that an attempt asked for", _TOKEN_BUCKETS)
        self.step_duration = histogram("step_duration_seconds", "Time in the runner per step")
        self.step_tokens = histogram("step_tokens", "Tokens computed per step", _TOKEN_BUCKETS)
        self.failed_runs = counter("inferway_engine_failed_runs", "Calls of the runner that failed, those that look for the cause included")
        self.drafts = counter("inferway_engine_spec_decode_num_drafts", "Times that a step checked drafts for a sequence")
        self.draft_tokens = counter("inferway_engine_spec_decode_num_draft_tokens", "Drafts that steps checked")
        self.accepted_tokens = counter("inferway_engine_spec_decode_num_accepted_tokens", "Drafts that were right")
        self.refusals = counter("inferway_engine_refusals", "Attempts not accepted", "reason")
        self.finishes = counter("inferway_engine_attempts", "Attempts that ended", "finished_reason")
        self.successes = counter("vllm:request_success", "Attempts that ended by themselves", "finished_reason")
        self.corrupted = counter("inferway_engine_corrupted_requests", "Attempts that ended because numbers were not finite")
        self.discarded = counter("inferway_engine_discarded_tokens", "Tokens thrown away")
        registry.register(_Aliases([one for one in vars(self).values() if isinstance(one, Histogram | Counter)]))
        self._gap = self.itl.labels(model)  # Looked up once: it is observed for every token.

    def step(self, report: StepReport) -> None:
        """See Observer."""
        if report.num_failed_runs:
            self.failed_runs.labels(self._model).inc(report.num_failed_runs)
        if report.events.num_drafts:
            self.drafts.labels(self._model).inc(report.events.num_drafts)
            self.draft_tokens.labels(self._model).inc(report.events.num_draft_tokens)
            self.accepted_tokens.labels(self._model).inc(report.events.num_accepted_tokens)
        if report.num_tokens:
            self.step_duration.labels(self._model).observe(report.duration_s)
            self.step_tokens.labels(self._model).observe(report.num_tokens)

    def tokens(self, attempt: Attempt, num_tokens: int, now_s: float) -> None:
        """See Observer. Tokens of one step share the time since the last one, so that the histogram tells how fast an answer grows."""
        last_s, num_gaps = attempt.last_token_s, num_tokens
        if last_s is None:
            self.ttft.labels(self._model).observe(now_s - attempt.started_s)
            last_s, num_gaps = now_s, num_tokens - 1
        for _ in range(num_gaps):
            self._gap.observe((now_s - last_s) / num_gaps)

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
        if reason == "non_finite_logits":
            self.corrupted.labels(self._model).inc()
        self.discarded.labels(self._model).inc(outcome.counts.discarded_tokens)
        self.prompt_tokens.labels(self._model).observe(outcome.counts.prompt_tokens)
        self.generation_tokens.labels(self._model).observe(outcome.counts.output_tokens)
        self.max_tokens.labels(self._model).observe(attempt.request.max_output_tokens)
        self._observe_times(attempt, now_s)

    def _observe_times(self, attempt: Attempt, now_s: float) -> None:
        """The stages that the attempt has completed; it may have ended in any."""
        self.duration.labels(self._model).observe(now_s - attempt.started_s)
        if attempt.begun_s is None:
            return
        self.queue.labels(self._model).observe(max(0.0, attempt.begun_s - attempt.started_s))
        if attempt.first_token_s is None or attempt.last_token_s is None:
            return
        self.prefill.labels(self._model).observe(attempt.first_token_s - attempt.begun_s)
        self.decode.labels(self._model).observe(attempt.last_token_s - attempt.first_token_s)
        self.inference.labels(self._model).observe(attempt.last_token_s - attempt.begun_s)


class LoadCollector(Collector):
    """Gauges and totals of the load, measured at each scrape."""

    def __init__(self, measure: Callable[[], ReplicaLoad], model: str, block_size: int) -> None:
        self._measure = measure
        self._model = model
        self._block_size = block_size

    def collect(self) -> Iterator[Metric]:
        """See Collector."""
        load = self._measure()
        batch, usage = load.batch, load.batch.num_used_blocks / load.num_blocks
        for prefix in ("inferway_engine_", "vllm:"):
            yield self._gauge(prefix + "num_requests_running", "Sequences in the batch", batch.num_running)
            yield self._gauge(prefix + "num_requests_waiting", "Attempts that wait inside the engine", load.num_waiting)
            yield self._gauge(prefix + "kv_cache_usage_perc", "KV blocks in use, from 0 to 1", usage)
            yield self._counter(prefix + "prompt_tokens", "Prompt tokens of attempts", load.prompt_tokens_total)
            yield self._counter(prefix + "generation_tokens", "Output tokens that count", load.output_tokens_total)
            yield self._counter(prefix + "num_preemptions", "Sequences preempted for KV blocks", batch.num_preemptions)
            yield self._counter(prefix + "prefix_cache_queries", "Prompt tokens looked for in it", batch.num_cache_query_tokens)
            yield self._counter(prefix + "prefix_cache_hits", "Prompt tokens read from it", batch.num_cache_hit_tokens)
            yield self._cache_config(prefix + "cache_config_info", load.num_blocks)
        yield self._gauge("inferway_engine_num_cached_blocks", "KV blocks that only the prefix cache keeps", batch.num_cached_blocks)
        yield self._counter("inferway_engine_prefix_cache_evictions", "Cached KV blocks given out for something else", batch.num_evictions)
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
    """Shows instruments a second time under the name that others expect, if there is one."""

    def __init__(self, instruments: list[Histogram | Counter]) -> None:
        self._instruments = instruments

    def collect(self) -> Iterator[Metric]:
        """See Collector."""
        for metric in (metric for instrument in self._instruments for metric in instrument.collect()):
            if metric.name not in _ALIASES:
                continue
            alias = Metric(_ALIASES[metric.name], metric.documentation, metric.type)
            for sample in metric.samples:
                alias.samples.append(sample._replace(name=sample.name.replace(metric.name, alias.name, 1)))
            yield alias
