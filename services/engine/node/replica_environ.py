"""What a replica process is told: its slot, its addresses, the settings of its deployment, and nothing of the node agent's own."""

from collections.abc import Mapping

from services.engine.node.config import PREFIX as NODE_PREFIX
from services.engine.node.config import NodeConfig
from services.engine.node.order import Order

ENGINE_PREFIX = "INFERWAY_ENGINE_"
# The node agent keeps the time of a drain, because an order may change it while the replica runs.
ENDLESS_DRAIN_S = 24 * 3600


def replica_environ(inherited: Mapping[str, str], config: NodeConfig, order: Order, port: int, metrics_port: int) -> dict[str, str]:
    """The environment of one replica. Deployment settings win over inherited ones; what identifies the replica wins over both.

    A replica that was given devices uses them, and sends its traces where the node agent does, unless its deployment says otherwise.
    """
    environ = {name: value for name, value in inherited.items() if not name.startswith(NODE_PREFIX)}
    environ.update({ENGINE_PREFIX + name.upper(): value for name, value in order.engine_settings.items()})
    identity = {
        "REPLICA_ID": order.replica_id,
        "MODEL": order.model,
        "MODEL_VERSION": order.model_version,
        "NODE_ID": config.node_id,
        "HOME": config.home,
        "HOST": config.host,
        "ADVERTISED_HOST": config.advertised_host,
        "PORT": str(port),
        "METRICS_PORT": str(metrics_port),
        "ETCD_ENDPOINTS": ",".join(config.etcd_endpoints),
        "KAFKA_BOOTSTRAP": config.kafka_bootstrap,
        "DRAIN_TIMEOUT_S": str(ENDLESS_DRAIN_S),
    }
    environ.update({ENGINE_PREFIX + name: value for name, value in identity.items()})
    if config.otlp_endpoint is not None:
        environ.setdefault(ENGINE_PREFIX + "OTLP_ENDPOINT", config.otlp_endpoint)
    if order.device_indexes:
        environ.setdefault(ENGINE_PREFIX + "DEVICE", "cuda")
        environ["CUDA_VISIBLE_DEVICES"] = ",".join(str(index) for index in order.device_indexes)
    return environ
