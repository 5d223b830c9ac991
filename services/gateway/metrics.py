"""All instruments of the gateway. Label values are bounded: models are the served ones, everything else comes from fixed lists."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from services.gateway.charge import Charge
from services.kit.errors import InferwayError

_TTFT_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_ITL_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_TOKEN_BUCKETS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536)


class GatewayMetrics:
    """A Meter that counts for Prometheus."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._refused = Counter(
            "inferway_gateway_refused_requests",
            "Requests that never became a charge.",
            ("surface", "reason"),
            registry=registry,
        )
        self._settled = Counter(
            "inferway_gateway_settled_requests",
            "Charges that were settled, by how they ended.",
            ("model", "surface", "outcome", "reason"),
            registry=registry,
        )
        self._tokens = Counter("inferway_gateway_billed_tokens", "Tokens that are billed.", ("model", "kind"), registry=registry)
        self._ttft = Histogram(
            "inferway_gateway_ttft_seconds", "Time to the first token.", ("model",), buckets=_TTFT_BUCKETS_S, registry=registry
        )
        self._itl = Histogram(
            "inferway_gateway_itl_seconds",
            "Mean time between the output tokens of a request, of its longest choice.",
            ("model",),
            buckets=_ITL_BUCKETS_S,
            registry=registry,
        )
        self._prompt_tokens = Histogram(
            "inferway_gateway_prompt_tokens", "Prompt tokens of a request.", ("model",), buckets=_TOKEN_BUCKETS, registry=registry
        )
        self._attempts = Counter("inferway_gateway_attempts", "Attempts that were made.", ("model",), registry=registry)
        self._in_work = Gauge("inferway_gateway_requests_in_work", "Requests that are in work.", registry=registry)
        self._router_connected = Gauge("inferway_gateway_router_connected", "1 while the link to the router is open.", registry=registry)
        self._sessions = Gauge("inferway_gateway_engine_sessions", "Sessions with replicas.", registry=registry)

    def watch(self, in_work: Callable[[], int], router_connected: Callable[[], bool], sessions: Callable[[], int]) -> None:
        """Where the gauges read their values at a scrape."""
        self._in_work.set_function(in_work)
        self._router_connected.set_function(lambda: float(router_connected()))
        self._sessions.set_function(sessions)

    def refused(self, surface: str, error: InferwayError) -> None:
        """See Meter."""
        self._refused.labels(surface, error.reason).inc()

    def settled(self, charge: Charge, duration_s: float) -> None:
        """See Meter."""
        model, usage = charge.model.name, charge.usage
        reason = charge.error.reason if charge.error is not None else charge.finish_reason
        self._settled.labels(model, charge.surface, charge.outcome.value, reason).inc()
        self._attempts.labels(model).inc(charge.num_attempts)
        self._tokens.labels(model, "prompt").inc(usage.prompt_tokens)
        self._tokens.labels(model, "cached_prompt").inc(usage.cached_prompt_tokens)
        self._tokens.labels(model, "completion").inc(usage.completion_tokens)
        self._prompt_tokens.labels(model).observe(len(charge.prompt_token_ids))
        if charge.ttft_s is not None:
            self._ttft.labels(model).observe(charge.ttft_s)
            longest = max(choice.output_tokens for choice in charge.choices)
            if longest > 1:
                self._itl.labels(model).observe(max(0.0, duration_s - charge.ttft_s) / (longest - 1))
