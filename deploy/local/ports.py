"""The port plan: every listener of one local mesh, derived from one base so that two meshes can run side by side."""

from dataclasses import dataclass, fields

DEFAULT_BASE = 8400
SPAN = 200  # ports base .. base + SPAN - 1 belong to one mesh
REPLICA_OFFSET = 100


@dataclass(frozen=True)
class PortPlan:
    """TCP ports on the loopback interface. Field order is the order of `inferway status`."""

    edge_http: int
    edge_tls: int
    envoy_admin: int
    gateway_grpc: int
    gateway_metrics: int
    router_grpc: int
    router_metrics: int
    scheduler_grpc: int
    scheduler_metrics: int
    metering_grpc: int
    metering_metrics: int
    node_grpc: int
    node_metrics: int
    etcd_client: int
    etcd_peer: int
    kafka: int
    kafka_controller: int
    replica_first: int
    replica_last: int

    @classmethod
    def from_base(cls, base: int) -> "PortPlan":
        """Lay the mesh out from `base`; raises ValueError when the block does not fit below 65536."""
        if not 1024 <= base <= 65536 - SPAN:
            raise ValueError(f"port base {base} is outside 1024..{65536 - SPAN}")
        return cls(
            edge_http=base,
            edge_tls=base + 1,
            envoy_admin=base + 2,
            gateway_grpc=base + 10,
            gateway_metrics=base + 11,
            router_grpc=base + 20,
            router_metrics=base + 21,
            scheduler_grpc=base + 30,
            scheduler_metrics=base + 31,
            metering_grpc=base + 40,
            metering_metrics=base + 41,
            node_grpc=base + 50,
            node_metrics=base + 51,
            etcd_client=base + 60,
            etcd_peer=base + 61,
            kafka=base + 62,
            kafka_controller=base + 63,
            replica_first=base + REPLICA_OFFSET,
            replica_last=base + SPAN - 1,
        )

    def listeners(self) -> dict[str, int]:
        """The ports that the runner itself gives out, by name; replica ports are handed out by the node agent."""
        return {f.name: getattr(self, f.name) for f in fields(self) if not f.name.startswith("replica_")}
