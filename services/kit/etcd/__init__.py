"""A small etcd client of our own: guarded writes, a watch that loses nothing, leases that know when they are lost, elections."""

from services.kit.etcd.client import EtcdClient
from services.kit.etcd.election import Election, Leadership
from services.kit.etcd.errors import Compacted, EtcdError, EtcdRefused, EtcdUnavailable, LeaseNotFound
from services.kit.etcd.lease import Lease, LeaseKeeper
from services.kit.etcd.values import Event, KeyValue, Listing, MemberStatus, TxnResult
from services.kit.etcd.watch import Watch

__all__ = [
    "Compacted",
    "Election",
    "EtcdClient",
    "EtcdError",
    "EtcdRefused",
    "EtcdUnavailable",
    "Event",
    "KeyValue",
    "Leadership",
    "Lease",
    "LeaseKeeper",
    "LeaseNotFound",
    "Listing",
    "MemberStatus",
    "TxnResult",
    "Watch",
]
