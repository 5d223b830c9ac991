"""What the native runner tells each service: addresses on the loopback interface and the mesh's home, in the service's own variables."""

from deploy.local import broker
from deploy.local.settings import Settings


def service_environ(name: str, settings: Settings) -> dict[str, str]:
    """INFERWAY_<SERVICE>_* of the service `name`; only variables that the service knows."""
    listeners = settings.ports.listeners()
    values = {
        "HOME": str(settings.home.root),
        "PORT": str(listeners[f"{name}_grpc"]),
        "METRICS_PORT": str(listeners[f"{name}_metrics"]),
        "ETCD_ENDPOINTS": settings.etcd_endpoint,
        **_own(name, settings),
    }
    return {f"INFERWAY_{name.upper()}_{field}": value for field, value in values.items()}


def _own(name: str, settings: Settings) -> dict[str, str]:
    events = {"KAFKA_BOOTSTRAP": broker.bootstrap(settings)}
    match name:
        case "gateway":
            return {"ROUTER_ADDRESS": f"127.0.0.1:{settings.ports.router_grpc}", **events}
        case "metering":
            return events
        case _:
            return {}
