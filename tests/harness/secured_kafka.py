"""A Kafka as other people run it: TLS for everybody and a password, on the one listener that clients see."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path

from deploy.local.certs import EdgeCertificates, ensure
from deploy.local.kafka import KafkaBroker

USER = "inferway"


@dataclass(frozen=True)
class SecuredKafka(KafkaBroker):
    """KafkaBroker whose client listener speaks SASL_SSL with the mechanism PLAIN; `password` belongs to USER."""

    password: str = ""

    @property
    def certificates(self) -> EdgeCertificates:
        """The broker's certificate and the authority that vouches for it; made on first use."""
        place = self.directory / "certs"
        place.mkdir(parents=True, exist_ok=True)
        return ensure(place, datetime.datetime.now(datetime.UTC))

    def properties(self) -> str:
        """See KafkaBroker; later lines win."""
        listeners = f"SASL_SSL://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}"
        login = f'required username="{USER}" password="{self.password}" user_{USER}="{self.password}";'
        secured = {
            "listeners": listeners,
            "advertised.listeners": f"SASL_SSL://127.0.0.1:{self.port}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL",
            "inter.broker.listener.name": "SASL_SSL",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": f"org.apache.kafka.common.security.plain.PlainLoginModule {login}",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._keystore()),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificates.ca),
        }
        return super().properties() + "".join(f"{name}={value}\n" for name, value in secured.items())

    def _keystore(self) -> Path:
        store = self.directory / "certs" / "keystore.pem"
        store.write_bytes(self.certificates.server_key.read_bytes() + self.certificates.server.read_bytes())
        store.chmod(0o600)
        return store
