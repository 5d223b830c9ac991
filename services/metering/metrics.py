"""All instruments of metering."""

from collections.abc import Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge

from services.metering.ledger.interface import Applied, Producer


class MeteringMetrics:
    """Counters of what came in, and gauges of what is missing."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str) -> Counter:
            return Counter(f"inferway_metering_{name}", text, registry=registry)

        self.requests = counter("requests", "Logical requests stored")
        self.attempts = counter("attempts", "Attempts stored")
        self.duplicates = counter("duplicate_records", "Records seen again with the same content")
        self.conflicts = counter("conflicting_records", "Records that contradict what is stored; set aside")
        self.quarantined = counter("quarantined_records", "Records set aside because they cannot be billed as they are")
        self.topic_resets = counter("topic_resets", "Times a partition's log was found replaced or cut")
        self.retention_gaps = counter("retention_gaps", "Times records were deleted from the log before they were read")
        self.missing = Gauge("inferway_metering_missing_records", "Records below a producer's highest that never came", registry=registry)
        self.lag = Gauge("inferway_metering_lag_records", "Records in the log not yet read", ("topic", "partition"), registry=registry)

    def count(self, applied: Applied) -> None:
        """Adds what one batch did."""
        self.requests.inc(applied.num_requests)
        self.attempts.inc(applied.num_attempts)
        self.duplicates.inc(applied.num_duplicates)
        self.conflicts.inc(applied.num_conflicts)
        self.quarantined.inc(applied.num_quarantined)

    def set_lag(self, lags: Mapping[tuple[str, int], int]) -> None:
        """Sets the distance to the end of the log."""
        for (topic, partition), lag in lags.items():
            self.lag.labels(topic, str(partition)).set(lag)

    def set_missing(self, producers: Sequence[Producer]) -> None:
        """Sets how many records of all producers are missing now."""
        self.missing.set(sum(producer.num_missing for producer in producers))
