"""What a person may choose about one local mesh, read from the environment once and checked before anything starts."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path

from deploy.local.errors import LocalError
from deploy.local.home import Home
from deploy.local.ports import DEFAULT_BASE, PortPlan


class Runner(StrEnum):
    """The engine back end of the replicas."""

    AUTO = "auto"
    TORCH = "torch"
    CPU = "cpu"
    SIM = "sim"


class BrokerChoice(StrEnum):
    """Which broker to start. AUTO takes Apache Kafka where it can be assembled, else Tansu."""

    AUTO = "auto"
    KAFKA = "kafka"
    TANSU = "tansu"


@dataclass(frozen=True)
class ExternalKafka:
    """An existing cluster, from INFERWAY_KAFKA_*. `bootstrap` empty means: start a broker. Empty strings mean "not set"."""

    bootstrap: str = ""
    security_protocol: str = ""
    sasl_mechanism: str = ""
    sasl_username: str = ""
    sasl_password: str = field(default="", repr=False)
    tls_ca: str = ""

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "ExternalKafka":
        return cls(**{one.name: environ.get(_kafka_variable(one.name), "") for one in fields(cls)})

    def to_environ(self) -> dict[str, str]:
        return {_kafka_variable(one.name): getattr(self, one.name) for one in fields(self)}


@dataclass(frozen=True)
class Settings:
    """One local mesh."""

    home: Home
    port_base: int
    runner: Runner
    broker: BrokerChoice
    kafka: ExternalKafka
    num_replicas: int
    otlp_endpoint: str = ""
    """host:port of a collector for traces; empty means no traces."""

    @property
    def ports(self) -> PortPlan:
        return PortPlan.from_base(self.port_base)

    @property
    def etcd_endpoint(self) -> str:
        return f"127.0.0.1:{self.ports.etcd_client}"

    @property
    def scheduler_address(self) -> str:
        return f"127.0.0.1:{self.ports.scheduler_grpc}"

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.ports.edge_http}"

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "Settings":
        """Read INFERWAY_HOME, _PORT_BASE, _ENGINE_RUNNER, _LOCAL_BROKER, _LOCAL_REPLICAS, _OTLP_ENDPOINT, _KAFKA_*; raises LocalError."""
        port_base = _number(environ, "INFERWAY_PORT_BASE", DEFAULT_BASE)
        try:
            PortPlan.from_base(port_base)
        except ValueError as error:
            raise LocalError(f"INFERWAY_PORT_BASE is unusable: {error}.", "Choose a base that leaves room for 200 ports.") from error
        return cls(
            home=Home(Path(environ.get("INFERWAY_HOME") or _default_home()).absolute()),
            port_base=port_base,
            runner=Runner(_choice(environ, "INFERWAY_ENGINE_RUNNER", Runner.AUTO, tuple(Runner))),
            broker=BrokerChoice(_choice(environ, "INFERWAY_LOCAL_BROKER", BrokerChoice.AUTO, tuple(BrokerChoice))),
            kafka=ExternalKafka.from_environ(environ),
            num_replicas=_number(environ, "INFERWAY_LOCAL_REPLICAS", 2),
            otlp_endpoint=_address(environ, "INFERWAY_OTLP_ENDPOINT"),
        )

    def to_environ(self) -> dict[str, str]:
        """The inverse of `from_environ`: what a child process needs to read the same settings."""
        return {
            "INFERWAY_HOME": str(self.home.root),
            "INFERWAY_PORT_BASE": str(self.port_base),
            "INFERWAY_ENGINE_RUNNER": self.runner.value,
            "INFERWAY_LOCAL_BROKER": self.broker.value,
            "INFERWAY_LOCAL_REPLICAS": str(self.num_replicas),
            "INFERWAY_OTLP_ENDPOINT": self.otlp_endpoint,
            **self.kafka.to_environ(),
        }


def _kafka_variable(name: str) -> str:
    return f"INFERWAY_KAFKA_{name.upper()}"


def _default_home() -> Path:
    """`.inferway` in the checkout that this code runs from, else in the current directory."""
    checkout = Path(__file__).resolve().parents[2]
    return (checkout if (checkout / "pyproject.toml").is_file() else Path()) / ".inferway"


def _number(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name) or str(default)
    if not text.isdecimal():
        raise LocalError(f"{name} must be a whole number, not {text!r}.", f"Unset it or set it to a number such as {default}.")
    return int(text)


def _address(environ: Mapping[str, str], name: str) -> str:
    """host:port, or empty; a scheme of http may stand before it."""
    text = environ.get(name, "").removeprefix("http://").rstrip("/")
    host, _, port = text.rpartition(":")
    if text and not (host and port.isdecimal() and "/" not in text):
        raise LocalError(f"{name} must be host:port of a gRPC listener, not {text!r}.", "Set it to an address such as 127.0.0.1:4317.")
    return text


def _choice(environ: Mapping[str, str], name: str, default: str, allowed: tuple[str, ...]) -> str:
    text = environ.get(name) or default
    if text not in allowed:
        raise LocalError(f"{name} must be one of {', '.join(allowed)}, not {text!r}.", f"Unset it to use {default}.")
    return text
