"""How long one engine replica takes from the start of its process until it says that it serves, apart from the rest of a mesh."""

import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from bench.contender import ContenderError

_ROOT = Path(__file__).resolve().parents[1]
_TIMEOUT_S = 120.0
_POLL_S = 0.02


def replica_start_s(environ: Mapping[str, str], model: str, log: Path) -> float:
    """Start a replica that registers nowhere, wait until it is SERVING, end it. ContenderError when it never is."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    told = {**environ, "INFERWAY_ENGINE_MODEL": model, "INFERWAY_ENGINE_PORT": str(port)}
    begin = time.monotonic()
    with log.open("wb") as file:
        process = subprocess.Popen([sys.executable, "-m", "services.engine"], env=told, cwd=_ROOT, stdout=file, stderr=file)
    try:
        while time.monotonic() - begin < _TIMEOUT_S and process.poll() is None:
            if _is_serving(port):
                return time.monotonic() - begin
            time.sleep(_POLL_S)
    finally:
        process.terminate()
        process.wait(_TIMEOUT_S)
    raise ContenderError(f"a replica did not start; see {log}")


def _is_serving(port: int) -> bool:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=1.0)
        except grpc.RpcError:
            return False
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)
