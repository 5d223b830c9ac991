"""What the native runner tells each service: addresses on the loopback interface and the mesh's home, in the service's own variables."""

from deploy.local import broker
from deploy.local.settings import Settings


def service_environ(name: str, settings: Settings) -> dict[str, str]:
    """INFERWAY_<SERVICE>_* of the service `name`; a variable that the service does not know would stop it."""
    listeners = settings.ports.listeners()
    values = {
        "PORT": str(listeners[f"{name}_grpc"]),
        "METRICS_PORT": str(listeners[f"{name}_metrics"]),
        "ETCD_ENDPOINTS": settings.etcd_endpoint,
        **_own(name, settings),
    }
    return {f"INFERWAY_{name.upper()}_{field}": value for field, value in values.items()}


def _own(name: str, settings: Settings) -> dict[str, str]:
    home, ports = settings.home, settings.ports
    match name:
        case "gateway":
            return {"HOME": str(home.root), "ROUTER_ADDRESS": f"127.0.0.1:{ports.router_grpc}", **_events(settings)}
        case "metering":
            return {"DATABASE_PATH": str(home.state / "ledger.sqlite"), **_events(settings)}
        case "node":
            replica_ports = {"REPLICA_PORT_FIRST": str(ports.replica_first), "REPLICA_PORT_LAST": str(ports.replica_last)}
            return {"HOME": str(home.root), "NODE_ID": "local", **replica_ports, "KAFKA_BOOTSTRAP": broker.bootstrap(settings)}
        case _:
            return {}


def _events(settings: Settings) -> dict[str, str]:
    """How to reach the broker. The password goes by file, which `up` has written."""
    kafka = settings.kafka
    values = {
        "KAFKA_BOOTSTRAP": broker.bootstrap(settings),
        "KAFKA_SECURITY_PROTOCOL": kafka.security_protocol,
        "KAFKA_TLS_CA_FILE": kafka.tls_ca,
        "KAFKA_SASL_MECHANISM": kafka.sasl_mechanism,
        "KAFKA_SASL_USERNAME": kafka.sasl_username,
        "KAFKA_SASL_PASSWORD_FILE": str(settings.home.kafka_password_file) if kafka.sasl_password else "",
    }
    return {name: value for name, value in values.items() if value}
