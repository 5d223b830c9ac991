"""How to reach a secured Kafka cluster, as all services of a mesh read it: INFERWAY_KAFKA_*. The address is each service's own setting."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from services.kit.config import load, require
from services.kit.kafka import KafkaSettings

PREFIX = "INFERWAY_KAFKA_"
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True)
class KafkaSecurity:
    """INFERWAY_KAFKA_*; files are PEM."""

    bootstrap: str = ""
    """Read by the native runner, which hands it to the services; known here so that it is not taken for a mistyped name."""
    security_protocol: str = "PLAINTEXT"
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    sasl_mechanism: str = ""
    sasl_username: str = ""
    sasl_password: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        require(self.security_protocol in PROTOCOLS, f"security_protocol must be one of {', '.join(PROTOCOLS)}")
        require(bool(self.tls_cert) == bool(self.tls_key), "tls_cert and tls_key go together")
        sasl = self.security_protocol.startswith("SASL")
        require(bool(self.sasl_mechanism) == sasl, "sasl_mechanism goes with the protocols SASL_PLAINTEXT and SASL_SSL, and only with them")


def kafka_settings(bootstrap: Sequence[str], environ: Mapping[str, str]) -> KafkaSettings:
    """Settings for the cluster at `bootstrap`; raises ConfigError that lists every malformed and unknown variable."""
    security = load(KafkaSecurity, PREFIX, environ)
    return KafkaSettings(
        bootstrap=tuple(bootstrap),
        security_protocol=security.security_protocol,
        ca_file=security.tls_ca,
        cert_file=security.tls_cert,
        key_file=security.tls_key,
        sasl_mechanism=security.sasl_mechanism,
        sasl_username=security.sasl_username,
        sasl_password=security.sasl_password,
    )
