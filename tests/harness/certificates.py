"""A certificate authority for tests: server and client certificates of loopback, as PEM files."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_LIFE = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Identity:
    """A certificate and its key, for "127.0.0.1" and as a client with its common name."""

    cert: Path
    key: Path


class CertificateAuthority:
    """Issues identities into ``directory``."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test CA")])
        builder = self._builder("test CA", self._key.public_key())
        certificate = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True).sign(
            self._key, hashes.SHA256()
        )
        self.cert = directory / "ca.pem"
        self.cert.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, common_name: str) -> Identity:
        """A new identity."""
        key = ec.generate_private_key(ec.SECP256R1())
        address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.IPv4Address("127.0.0.1"))])
        certificate = self._builder(common_name, key.public_key()).add_extension(address, critical=False).sign(self._key, hashes.SHA256())
        identity = Identity(self._directory / f"{common_name}.pem", self._directory / f"{common_name}.key")
        identity.cert.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        pem, pkcs8, plain = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        identity.key.write_bytes(key.private_bytes(pem, pkcs8, plain))
        return identity

    def credentials(self, identity: Identity | None = None) -> grpc.ChannelCredentials:
        """Channel credentials of a client that trusts this authority, with or without a certificate of its own."""
        if identity is None:
            return grpc.ssl_channel_credentials(self.cert.read_bytes())
        return grpc.ssl_channel_credentials(self.cert.read_bytes(), identity.key.read_bytes(), identity.cert.read_bytes())

    def _builder(self, common_name: str, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)]))
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _LIFE)
            .not_valid_after(now + _LIFE)
        )
