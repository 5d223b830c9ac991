"""Chooses the broker of one mesh: an existing cluster, else Apache Kafka where it can be assembled, else Tansu."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from deploy.local import java, kafka_artefacts, tansu
from deploy.local.child_spec import ChildSpec
from deploy.local.errors import LocalError
from deploy.local.kafka import KafkaBroker
from deploy.local.settings import BrokerChoice, Settings


class BrokerKind(StrEnum):
    """The broker in use, as `inferway status` names it."""

    KAFKA = "Apache Kafka"
    TANSU = "Tansu"
    EXTERNAL = "external cluster"


@dataclass(frozen=True)
class Decision:
    """Which broker, and in one line why."""

    kind: BrokerKind
    reason: str


def decide(settings: Settings, environ: Mapping[str, str]) -> Decision:
    """Look at what the machine has; starts and fetches nothing. Raises LocalError when Kafka is demanded and cannot run."""
    if settings.kafka.bootstrap:
        return Decision(BrokerKind.EXTERNAL, f"Using the Kafka cluster at {settings.kafka.bootstrap}.")
    if settings.broker is BrokerChoice.TANSU:
        return Decision(BrokerKind.TANSU, "Tansu was asked for; it keeps events in memory only.")
    missing = _missing_for_kafka(environ)
    if not missing:
        return Decision(BrokerKind.KAFKA, f"Apache Kafka {kafka_artefacts.KAFKA_VERSION} keeps events on disk.")
    if settings.broker is BrokerChoice.KAFKA:
        raise LocalError(f"Apache Kafka was asked for, but {missing}.", "Install it, or unset INFERWAY_LOCAL_BROKER to use Tansu.")
    return Decision(BrokerKind.TANSU, f"Tansu is used because {missing}; it keeps events in memory only.")


def prepare(kind: BrokerKind, settings: Settings, environ: Mapping[str, str]) -> None:
    """Fetch and format what `child` will need; slow only the first time. Raises LocalError."""
    if kind is BrokerKind.KAFKA:
        kafka_artefacts.ensure(environ)
        _kafka(settings, environ).prepare()


def child(kind: BrokerKind, settings: Settings, environ: Mapping[str, str]) -> ChildSpec | None:
    """The process to supervise; None for an existing cluster."""
    match kind:
        case BrokerKind.EXTERNAL:
            return None
        case BrokerKind.TANSU:
            return tansu.child(settings.ports.kafka)
        case BrokerKind.KAFKA:
            return _kafka(settings, environ).child()


def bootstrap(settings: Settings) -> str:
    """The address that the services get."""
    return settings.kafka.bootstrap or f"127.0.0.1:{settings.ports.kafka}"


def _missing_for_kafka(environ: Mapping[str, str]) -> str:
    if not (kafka_artefacts.is_complete(kafka_artefacts.cache_directory(environ)) or kafka_artefacts.can_fetch(environ)):
        return "Maven (mvn) is not installed"
    if java.find(environ) is None:
        return f"no Java {java.MIN_MAJOR} or newer was found"
    return ""


def _kafka(settings: Settings, environ: Mapping[str, str]) -> KafkaBroker:
    runtime = java.find(environ)
    if runtime is None:
        raise LocalError(f"No Java {java.MIN_MAJOR} or newer was found.", "Install one, or set INFERWAY_LOCAL_BROKER=tansu.")
    return KafkaBroker(
        java=runtime,
        libs=kafka_artefacts.cache_directory(environ),
        directory=settings.home.kafka,
        port=settings.ports.kafka,
        controller_port=settings.ports.kafka_controller,
    )
