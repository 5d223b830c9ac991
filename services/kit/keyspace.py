"""The layout of etcd, said once: every path of the registry is built here (values: inferway/common/v1/registry.proto as JSON)."""

import re

ROOT = "/inferway/v1/"

_SEGMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,127}")


def segment(name: str) -> str:
    """One path segment; raises ValueError unless it is 1-128 characters of [A-Za-z0-9._@-] and starts with a letter or digit."""
    if not _SEGMENT.fullmatch(name):
        raise ValueError(f"not a valid name for the registry: {name[:64]!r}; use 1-128 letters, digits or . _ @ -")
    return name


def nodes() -> str:
    """Prefix of all nodes."""
    return ROOT + "nodes/"


def node(node_id: str) -> str:
    """Key of one Node."""
    return nodes() + segment(node_id)


def replicas(model: str | None = None) -> str:
    """Prefix of all replicas, or of those of one model."""
    return ROOT + "replicas/" + (segment(model) + "/" if model is not None else "")


def replica(model: str, replica_id: str) -> str:
    """Key of one Replica."""
    return replicas(model) + segment(replica_id)


def assignments(node_id: str | None = None) -> str:
    """Prefix of all assignments, or of those of one node."""
    return ROOT + "assignments/" + (segment(node_id) + "/" if node_id is not None else "")


def assignment(node_id: str, replica_id: str) -> str:
    """Key of one Assignment."""
    return assignments(node_id) + segment(replica_id)


def deployments() -> str:
    """Prefix of all deployments."""
    return ROOT + "deployments/"


def deployment(model: str) -> str:
    """Key of one Deployment."""
    return deployments() + segment(model)


def cordons() -> str:
    """Prefix of all cordons."""
    return ROOT + "cordons/"


def cordon(node_id: str) -> str:
    """Key of the Cordon of one node."""
    return cordons() + segment(node_id)


def decisions(model: str) -> str:
    """Key of the scheduler's decisions on one model: an ExplainResponse of inferway.scheduler.v1 as JSON."""
    return ROOT + "decisions/" + segment(model)


def routes() -> str:
    """Prefix of all routes."""
    return ROOT + "routes/"


def tenants() -> str:
    """Prefix of all tenants."""
    return ROOT + "tenants/"


def tenant(tenant_id: str) -> str:
    """Key of one Tenant."""
    return tenants() + segment(tenant_id)


def api_keys() -> str:
    """Prefix of all API keys."""
    return ROOT + "keys/"


def api_key(secret_sha256_hex: str) -> str:
    """Key of one ApiKey, by the SHA-256 of its secret in hex."""
    return api_keys() + segment(secret_sha256_hex)


def watermarks() -> str:
    """Prefix of the ledger's watermarks."""
    return ROOT + "watermarks/"


def watermark(producer_id: str) -> str:
    """Key of one producer's watermark: the decimal sequence number up to which the ledger holds everything."""
    return watermarks() + segment(producer_id)


def leader(service: str) -> str:
    """Key of a service's leader."""
    return ROOT + "leader/" + segment(service)
