"""kafka-python behind the protocols of events.py: each client lives in one thread of its own, off the event loop."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import kafka
from kafka.errors import (
    KafkaConnectionError,
    KafkaError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from kafka.net.compat import KafkaNetClient

from services.kit.call_thread import CallThread
from services.kit.events import EventsUnavailable, OffsetOutOfRange, OutgoingRecord, ReceivedRecord, TopicPartition

T = TypeVar("T")

_SEND_TIMEOUT_S = 15.0
_CLOSE_TIMEOUT_S = 2.0
_END_TIMEOUT_S = 3.0
_CONNECT_TIMEOUT_S = 1.0
_NO_TOPIC_ID = str(uuid.UUID(int=0))


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """How to reach a cluster. ``security_protocol`` is PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL; empty strings mean "not set"."""

    bootstrap: tuple[str, ...]
    security_protocol: str = "PLAINTEXT"
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    sasl_mechanism: str = ""
    sasl_username: str = ""
    sasl_password: str = ""

    def client_options(self) -> dict[str, Any]:
        """Options that all three kinds of client share."""
        return {
            "bootstrap_servers": list(self.bootstrap),
            "bootstrap_timeout_ms": 5_000,
            "request_timeout_ms": 10_000,
            # The client's default back-off of up to 30 s makes it come back long after the broker did.
            "reconnect_backoff_ms": 100,
            "reconnect_backoff_max_ms": 500,
            "security_protocol": self.security_protocol,
            "ssl_cafile": self.ca_file or None,
            "ssl_certfile": self.cert_file or None,
            "ssl_keyfile": self.key_file or None,
            "sasl_mechanism": self.sasl_mechanism or None,
            "sasl_plain_username": self.sasl_username or None,
            "sasl_plain_password": self.sasl_password or None,
        }


class _ClientThread:
    """Runs blocking calls of one client one after the other in one thread."""

    def __init__(self, name: str) -> None:
        self._thread = CallThread(name)

    async def run(self, call: Callable[[], T]) -> T:
        """Runs the call; KafkaError becomes EventsUnavailable. A cancelled caller leaves the call to end by itself."""
        try:
            return await self._thread.run(call)
        except KafkaError as error:
            raise EventsUnavailable(f"kafka: {type(error).__name__}: {error}") from error

    async def close(self, last_call: Callable[[], None]) -> None:
        """Runs the last call and ends the thread; a call to a silent broker, which may take a minute, is not waited for."""
        with suppress(KafkaError):
            await self._thread.close(last_call, _END_TIMEOUT_S)


class KafkaProducer:
    """An EventProducer. The client is made at the first send, and made anew after any failure: an idempotent producer whose broker lost
    its state never recovers by itself. Consumers therefore have to expect a record twice. ``topics`` (partitions by topic) are created
    whenever the client is made, should they be missing: a broker without a disk forgets them. Without ``topics`` the broker's rule decides.
    """

    def __init__(self, settings: KafkaSettings, topics: Mapping[str, int] | None = None) -> None:
        self._settings = settings
        self._topics = topics or {}
        self._options = settings.client_options() | {
            "allow_auto_create_topics": not self._topics,
            "acks": "all",
            "linger_ms": 5,
            "max_block_ms": 5_000,
            "delivery_timeout_ms": 12_000,
        }
        self._thread = _ClientThread("kafka-producer")
        self._client: Any = None

    async def send(self, records: Sequence[OutgoingRecord]) -> None:
        """See EventProducer. Takes at most about 30 s: 6 s to connect, 5 s for metadata, 15 s for all acknowledgements, 2 s to give up."""
        await self._thread.run(lambda: self._send(records))

    async def close(self) -> None:
        """See EventProducer."""
        await self._thread.close(self._discard)

    def _send(self, records: Sequence[OutgoingRecord]) -> None:
        if self._client is None:
            _require_reachable(self._settings.bootstrap)
            if self._topics:
                _create_missing(self._settings, self._topics)
            self._client = _make(kafka.KafkaProducer, self._options)
        try:
            futures = [self._client.send(r.topic, key=r.key, value=r.value, headers=list(r.headers)) for r in records]
            self._client.flush(_SEND_TIMEOUT_S)
            for future in futures:
                future.get(timeout=0)
        except KafkaError:
            self._discard()
            raise

    def _discard(self) -> None:
        client, self._client = self._client, None
        if client is None:
            return
        try:
            client.close(timeout=_CLOSE_TIMEOUT_S)
        except KafkaError:  # Batches are still on their way; without this the client's thread would try for ever.
            client._sender.force_close()


class KafkaConsumer:
    """An EventConsumer. The client is made at the first call, and made anew after any failure, at the offsets reached so far."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._options = settings.client_options() | {
            "group_id": None,
            "enable_auto_commit": False,
            "auto_offset_reset": "none",
            "allow_auto_create_topics": False,
            # Fetches are answered twice a second, or when there is a lot: one for every few records costs broker and ledger much more.
            "fetch_min_bytes": 64 * 1024,
            "fetch_max_wait_ms": 500,
            "max_partition_fetch_bytes": 4 * 1024 * 1024,
        }
        self._thread = _ClientThread("kafka-consumer")
        self._client: Any = None
        self._next_offsets: dict[TopicPartition, int] = {}
        self._is_positioned = False

    async def partitions(self, topic: str) -> tuple[int, ...]:
        """See EventConsumer."""
        return await self._run(lambda client: tuple(sorted(client.partitions_for_topic(topic))))

    async def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """See EventConsumer. Asked of the broker each time, with a client of its own."""
        return await self._thread.run(lambda: _topic_ids(self._settings, topics))

    async def assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        """See EventConsumer. Takes a new client: one that has read from an earlier incarnation of a topic may wait in silence for ever."""
        self._next_offsets = dict(offsets)
        await self._thread.run(self._discard)
        await self._run(lambda _client: None, positioned=True)

    async def poll(self, timeout_s: float, max_records: int) -> list[ReceivedRecord]:
        """See EventConsumer."""
        found = await self._run(lambda client: client.poll(timeout_ms=int(timeout_s * 1000), max_records=max_records), positioned=True)
        records = [_received(record) for partition in found.values() for record in partition]
        for record in records:
            self._next_offsets[TopicPartition(record.topic, record.partition)] = record.offset + 1
        return records

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """See EventConsumer."""
        wanted = _native(partitions)
        return _offsets(await self._run(lambda client: client.beginning_offsets(wanted)))

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """See EventConsumer."""
        wanted = _native(partitions)
        return _offsets(await self._run(lambda client: client.end_offsets(wanted)))

    async def close(self) -> None:
        """See EventConsumer."""
        await self._thread.close(self._discard)

    async def _run(self, call: Callable[[Any], T], *, positioned: bool = False) -> T:
        return await self._thread.run(lambda: self._call(call, positioned))

    def _call(self, call: Callable[[Any], T], positioned: bool) -> T:
        if self._client is None:
            _require_reachable(self._settings.bootstrap)
            self._client = _make(kafka.KafkaConsumer, self._options)
            self._is_positioned = False
        try:
            if positioned and not self._is_positioned:
                self._seek(self._client)
                self._is_positioned = True
            return call(self._client)
        except (OffsetOutOfRangeError, NoOffsetForPartitionError) as error:
            raise OffsetOutOfRange(f"kafka: offset is out of range: {error}") from error
        except KafkaError:
            self._discard()
            raise

    def _seek(self, client: Any) -> None:
        for topic, number in self._next_offsets:
            if number not in client.partitions_for_topic(topic):  # The client would wait minutes before it looked again.
                raise UnknownTopicOrPartitionError(f"{topic} has no partition {number}")
        client.assign(_native(self._next_offsets))
        for partition, offset in self._next_offsets.items():
            client.seek(kafka.TopicPartition(*partition), offset)

    def _discard(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close(autocommit=False, timeout_ms=int(_CLOSE_TIMEOUT_S * 1000))


def _make(kind: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    """A client. One that cannot be made, as the broker accepts connections and is silent, would leave its sockets and its thread behind."""
    networks: list[Any] = []

    def make_network(**settings: Any) -> Any:
        networks.append(KafkaNetClient(**settings))
        return networks[-1]

    try:
        return kind(**options, kafka_client=make_network)
    except KafkaError:
        for network in networks:
            network.close()
        raise


async def ensure_topics(settings: KafkaSettings, partitions_by_topic: Mapping[str, int]) -> None:
    """Creates the topics that do not exist, with so many partitions and the broker's default replication. Raises EventsUnavailable."""
    thread = _ClientThread("kafka-admin")
    try:
        await thread.run(lambda: _create_missing(settings, partitions_by_topic))
    finally:
        await thread.close(lambda: None)


def _create_missing(settings: KafkaSettings, partitions_by_topic: Mapping[str, int]) -> None:
    _require_reachable(settings.bootstrap)
    admin = _make(kafka.KafkaAdminClient, settings.client_options())
    try:
        present = {topic["name"] for topic in admin.describe_topics() if not topic["error_code"]}
        missing = {name: {"num_partitions": num} for name, num in partitions_by_topic.items() if name not in present}
        if missing:
            admin.create_topics(missing, wait_for_metadata=True)
    except TopicAlreadyExistsError:  # Another process was faster.
        admin.wait_for_topics(list(partitions_by_topic))
    finally:
        admin.close()


def _topic_ids(settings: KafkaSettings, topics: Sequence[str]) -> dict[str, str]:
    _require_reachable(settings.bootstrap)
    admin = _make(kafka.KafkaAdminClient, settings.client_options())
    try:
        found = {each["name"]: str(each["topic_id"]) for each in admin.describe_topics(list(topics)) if not each["error_code"]}
    finally:
        admin.close()
    return {topic: topic_id for topic, topic_id in found.items() if topic_id != _NO_TOPIC_ID}


def _require_reachable(bootstrap: Sequence[str]) -> None:
    """Raises KafkaConnectionError unless some bootstrap server accepts connections: a client made in vain leaves sockets behind."""
    for server in bootstrap:
        host, _, port = server.rpartition(":")
        with suppress(OSError), socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_TIMEOUT_S):
            return
    raise KafkaConnectionError(f"nobody answers at {', '.join(bootstrap)}")


def _native(partitions: Iterable[TopicPartition]) -> list[Any]:
    return [kafka.TopicPartition(*partition) for partition in partitions]


def _offsets(found: Mapping[Any, int]) -> dict[TopicPartition, int]:
    return {TopicPartition(partition.topic, partition.partition): offset for partition, offset in found.items()}


def _received(record: Any) -> ReceivedRecord:
    key, value, headers = record.key or b"", record.value or b"", tuple(record.headers or ())
    return ReceivedRecord(record.topic, record.partition, record.offset, key, value, headers, record.timestamp)
