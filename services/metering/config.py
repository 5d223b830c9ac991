"""Settings of metering, from INFERWAY_METERING_*."""

from dataclasses import dataclass

from services.kit.config import require


@dataclass(frozen=True)
class MeteringConfig:
    """See the comments; times in seconds, sizes in bytes."""

    home: str = ".inferway"  # the ledger is <home>/state/ledger.sqlite
    etcd_endpoints: tuple[str, ...] = ("127.0.0.1:2379",)
    kafka_bootstrap: tuple[str, ...] = ("127.0.0.1:9092",)
    requests_topic: str = "usage.requests.v1"
    attempts_topic: str = "usage.attempts.v1"
    topic_partitions: int = 4  # of topics that metering creates
    host: str = "127.0.0.1"
    port: int = 0
    metrics_port: int | None = None
    max_batch_records: int = 500
    check_log_s: float = 5.0
    drain_timeout_s: float = 10.0
    log_level: str = "INFO"
    otlp_endpoint: str | None = None
    trace_sample_ratio: float = 0.05

    def __post_init__(self) -> None:
        require(bool(self.etcd_endpoints), "etcd_endpoints must name at least one host:port")
        require(1 <= self.topic_partitions <= 1000, "topic_partitions must be within 1 to 1000")
        require(1 <= self.max_batch_records <= 10_000, "max_batch_records must be within 1 to 10000")
        require(self.check_log_s > 0, "check_log_s must be positive")
