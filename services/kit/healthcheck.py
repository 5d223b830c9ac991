"""A container's health command: `python -m services.kit.healthcheck HOST:PORT` exits 0 when the server answers SERVING."""

import sys

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

TIMEOUT_S = 2.0


def check(address: str) -> str:
    """The serving status by name, or the reason why there is none."""
    with grpc.insecure_channel(address) as channel:
        try:
            response = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S)
        except grpc.RpcError as error:
            return f"unreachable: {error.code().name}"
        return str(health_pb2.HealthCheckResponse.ServingStatus.Name(response.status))


def main() -> None:
    """Prints the status and exits 0 or 1."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m services.kit.healthcheck HOST:PORT")
    status = check(sys.argv[1])
    print(status)
    sys.exit(0 if status == "SERVING" else 1)


if __name__ == "__main__":
    main()
