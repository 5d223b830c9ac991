"""The development certificate authority and the edge's server certificate, made once per INFERWAY_HOME and renewed before they expire."""

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from deploy.local.home import write_atomically

CA_LIFE = datetime.timedelta(days=3650)
SERVER_LIFE = datetime.timedelta(days=397)
RENEW_BEFORE = datetime.timedelta(days=30)
_BACKDATE = datetime.timedelta(minutes=5)  # tolerates a peer whose clock is a little behind


@dataclass(frozen=True)
class EdgeCertificates:
    """Files in PEM form. Only `ca` is meant to be handed to clients."""

    ca: Path
    ca_key: Path
    server: Path
    server_key: Path


def ensure(directory: Path, now: datetime.datetime) -> EdgeCertificates:
    """Make what is missing or expires within RENEW_BEFORE of `now` (aware, UTC). A new authority also renews the server certificate."""
    files = EdgeCertificates(directory / "ca.pem", directory / "ca.key", directory / "server.pem", directory / "server.key")
    if not _usable(files.ca, files.ca_key, now):
        _make_authority(files, now)
        files.server.unlink(missing_ok=True)
    if not _usable(files.server, files.server_key, now):
        _make_server(files, now)
    return files


def _usable(certificate: Path, key: Path, now: datetime.datetime) -> bool:
    if not (certificate.exists() and key.exists()):
        return False
    try:
        parsed = x509.load_pem_x509_certificate(certificate.read_bytes())
        private = serialization.load_pem_private_key(key.read_bytes(), password=None)
    except ValueError:
        return False
    return parsed.not_valid_after_utc - now > RENEW_BEFORE and parsed.public_key() == private.public_key()


def _make_authority(files: EdgeCertificates, now: datetime.datetime) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Inferway development CA")])
    certificate = (
        _builder(name, name, key.public_key(), now, CA_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    _write_pair(files.ca, files.ca_key, certificate, key)


def _make_server(files: EdgeCertificates, now: datetime.datetime) -> None:
    authority = x509.load_pem_x509_certificate(files.ca.read_bytes())
    authority_key = serialization.load_pem_private_key(files.ca_key.read_bytes(), password=None)
    assert isinstance(authority_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    names = x509.SubjectAlternativeName(
        [
            x509.DNSName("localhost"),
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
            x509.IPAddress(ipaddress.ip_address("::1")),
        ]
    )
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    certificate = (
        _builder(subject, authority.subject, key.public_key(), now, SERVER_LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(names, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    _write_pair(files.server, files.server_key, certificate, key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime.datetime, life: datetime.timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATE)
        .not_valid_after(now + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _write_pair(certificate_file: Path, key_file: Path, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    write_atomically(key_file, secret)
    write_atomically(certificate_file, certificate.public_bytes(serialization.Encoding.PEM), mode=0o644)
