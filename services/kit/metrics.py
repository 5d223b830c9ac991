"""Prometheus: one registry per process, served over HTTP from its own thread; label values are bounded by whoever sets them."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST

LATENCY_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
SILENCE_S = 10.0


def new_registry() -> CollectorRegistry:
    """A registry with the process's own figures and without the `_created` series."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = CollectorRegistry(auto_describe=True)
    ProcessCollector(registry=registry)
    return registry


class RpcMetrics:
    """What the interceptors count: calls by method and code, and their duration."""

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ("method", "code")
        self.started = Counter("inferway_rpc_started", "RPCs that began", ("method",), registry=registry)
        self.handled = Counter("inferway_rpc_handled", "RPCs that ended, by gRPC code", labels, registry=registry)
        self.duration = Histogram(
            "inferway_rpc_duration_seconds", "Time to the end of an RPC", ("method",), buckets=LATENCY_BUCKETS_S, registry=registry
        )
        self.in_flight = Gauge("inferway_rpc_in_flight", "RPCs that run now", ("method",), registry=registry)


class MetricsServer:
    """Serves GET /metrics; `before_scrape` may refresh gauges and runs in the server's thread."""

    def __init__(self, registry: CollectorRegistry, host: str, port: int, before_scrape: Callable[[], None] | None = None) -> None:
        self._server = ThreadingHTTPServer((host, port), _handler(registry, before_scrape))
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)

    @property
    def port(self) -> int:
        """The bound port."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Starts to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Stops to answer and frees the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(registry: CollectorRegistry, before_scrape: Callable[[], None] | None) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = SILENCE_S  # Each connection has a thread; one that asks nothing must not keep it.

        def do_GET(self) -> None:
            if self.path.split("?")[0] != "/metrics":
                self.send_error(404)
                return
            if before_scrape is not None:
                before_scrape()
            body = generate_latest(registry)
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE_LATEST)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Scrapes are not logged."""

    return Handler
