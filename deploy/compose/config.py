"""Settings of the one-off steps, from INFERWAY_PREPARE_*."""

from dataclasses import dataclass

from services.kit.config import require

PREFIX = "INFERWAY_PREPARE_"


@dataclass(frozen=True)
class PrepareConfig:
    """Addresses are host:port; each step reads only its part."""

    home: str = "/state"
    model: str = "smollm2-135m-instruct"
    num_replicas: int = 2
    etcd_endpoints: tuple[str, ...] = ("etcd:2379",)
    scheduler_address: str = "scheduler:9130"
    gateway_address: str = "gateway:9110"
    edge_directory: str = "/edge"
    edge_plain_port: int = 8080
    edge_tls_port: int = 8443
    edge_admin_port: int = 9901

    def __post_init__(self) -> None:
        require(self.num_replicas >= 0, "num_replicas must not be negative")
        require(self.gateway_address.rpartition(":")[2].isdecimal(), "gateway_address must be host:port")
