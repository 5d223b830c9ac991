"""Development certificates: made once, trusted through their own authority, renewed in time."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509

from deploy.local.certs import RENEW_BEFORE, SERVER_LIFE, EdgeCertificates, ensure

NOW = datetime.datetime(2030, 5, 1, tzinfo=datetime.UTC)


def load(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def contents(files: EdgeCertificates) -> list[bytes]:
    return [path.read_bytes() for path in (files.ca, files.ca_key, files.server, files.server_key)]


def test_ensure_makes_a_server_certificate_that_its_authority_vouches_for(tmp_path: Path) -> None:
    files = ensure(tmp_path, NOW)

    server, authority = load(files.server), load(files.ca)
    server.verify_directly_issued_by(authority)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1")]
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_ensure_keeps_keys_to_their_owner(tmp_path: Path) -> None:
    files = ensure(tmp_path, NOW)

    assert {path.stat().st_mode & 0o777 for path in (files.ca_key, files.server_key)} == {0o600}


def test_ensure_called_again_changes_nothing(tmp_path: Path) -> None:
    before = contents(ensure(tmp_path, NOW))

    assert contents(ensure(tmp_path, NOW + datetime.timedelta(days=1))) == before


def test_ensure_near_expiry_renews_the_server_certificate_under_the_same_authority(tmp_path: Path) -> None:
    before = ensure(tmp_path, NOW)
    authority, old = before.ca.read_bytes(), before.server.read_bytes()
    later = NOW + SERVER_LIFE - RENEW_BEFORE + datetime.timedelta(days=1)

    files = ensure(tmp_path, later)

    assert files.ca.read_bytes() == authority
    assert files.server.read_bytes() != old
    assert load(files.server).not_valid_after_utc > later + RENEW_BEFORE


def test_ensure_with_a_lost_authority_key_renews_both(tmp_path: Path) -> None:
    files = ensure(tmp_path, NOW)
    files.ca_key.unlink()

    ensure(tmp_path, NOW)

    load(files.server).verify_directly_issued_by(load(files.ca))


def test_ensure_with_a_damaged_certificate_makes_a_new_one(tmp_path: Path) -> None:
    files = ensure(tmp_path, NOW)
    files.server.write_text("-----BEGIN CERTIFICATE-----\nbroken\n-----END CERTIFICATE-----\n")

    ensure(tmp_path, NOW)

    load(files.server).verify_directly_issued_by(load(files.ca))
