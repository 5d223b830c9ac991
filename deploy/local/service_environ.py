"""What the native runner tells each service: addresses on the loopback interface and the mesh's home, in the service's own variables.

How to reach a secured Kafka cluster is common to all services and stays in INFERWAY_KAFKA_*, which every process of the mesh inherits.
"""

from deploy.local import broker
from deploy.local.settings import Settings


def service_environ(name: str, settings: Settings) -> dict[str, str]:
    """INFERWAY_<SERVICE>_* of the service `name`; a variable that the service does not know would stop it."""
    listeners = settings.ports.listeners()
    values = {
        "PORT": str(listeners[f"{name}_grpc"]),
        "METRICS_PORT": str(listeners[f"{name}_metrics"]),
        "ETCD_ENDPOINTS": settings.etcd_endpoint,
        **_traces(settings),
        **_own(name, settings),
    }
    return {f"INFERWAY_{name.upper()}_{field}": value for field, value in values.items()}


def _traces(settings: Settings) -> dict[str, str]:
    """Where a collector is given, a mesh on one machine traces every request."""
    return {"OTLP_ENDPOINT": settings.otlp_endpoint, "TRACE_SAMPLE_RATIO": "1"} if settings.otlp_endpoint else {}


def _own(name: str, settings: Settings) -> dict[str, str]:
    home, ports = {"HOME": str(settings.home.root)}, settings.ports
    events = {"KAFKA_BOOTSTRAP": broker.bootstrap(settings)}
    match name:
        case "gateway":
            return {"ROUTER_ADDRESS": f"127.0.0.1:{ports.router_grpc}", **home, **events}
        case "metering":
            return {**home, **events}
        case "node":
            replica_ports = {"REPLICA_PORT_FIRST": str(ports.replica_first), "REPLICA_PORT_LAST": str(ports.replica_last)}
            return {"NODE_ID": "local", **replica_ports, **home, **events}
        case _:
            return {}
