"""Produces the numbers 0..COUNT-1 with acks=all and prints each one that the broker acknowledged: `BOOTSTRAP TOPIC COUNT`.

A process of its own, because the client leaves sockets behind while its broker is away.
"""

from __future__ import annotations

import sys

from kafka import KafkaProducer

_BATCH = 100
_FLUSH_TIMEOUT_S = 40


def main(bootstrap: str, topic: str, count: int) -> None:
    """Send in order; leaves when every record is settled."""
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        acks="all",
        linger_ms=2,
        reconnect_backoff_ms=100,
        reconnect_backoff_max_ms=500,
        max_block_ms=30_000,
    )
    for number in range(count):
        producer.send(topic, key=b"tenant", value=str(number).encode()).add_callback(lambda _, sent=number: print(sent, flush=True))
        if number % _BATCH == _BATCH - 1:
            producer.flush(timeout=_FLUSH_TIMEOUT_S)
    producer.close(timeout=_FLUSH_TIMEOUT_S)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
