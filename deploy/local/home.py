"""Where one local mesh keeps its files: everything below INFERWAY_HOME, nothing outside it."""

import os
from dataclasses import dataclass
from pathlib import Path

from deploy.local.errors import LocalError

_PRIVATE_DIR = 0o700
_PRIVATE_FILE = 0o600


@dataclass(frozen=True)
class Home:
    """Paths below one INFERWAY_HOME. Purely names; `create` makes the directories."""

    root: Path

    @property
    def state(self) -> Path:
        return self.root / "state"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def certs(self) -> Path:
        return self.root / "certs"

    @property
    def models(self) -> Path:
        return self.root / "models"

    @property
    def outbox(self) -> Path:
        return self.root / "outbox"

    @property
    def kafka(self) -> Path:
        return self.root / "kafka"

    @property
    def etcd(self) -> Path:
        return self.root / "etcd"

    @property
    def status_file(self) -> Path:
        return self.run / "status.json"

    @property
    def supervisor_lock(self) -> Path:
        return self.run / "supervisor.lock"

    @property
    def command_lock(self) -> Path:
        return self.run / "command.lock"

    @property
    def demo_key_file(self) -> Path:
        return self.run / "demo-key"

    @property
    def envoy_config(self) -> Path:
        return self.run / "envoy.yaml"

    @property
    def descriptors(self) -> Path:
        return self.run / "inferway.protoset"

    def log(self, name: str) -> Path:
        """The log file of the child `name`."""
        return self.logs / f"{name}.log"

    def create(self) -> None:
        """Make every directory, private to the user; raises LocalError when the place cannot be written."""
        try:
            self.root.mkdir(parents=True, exist_ok=True, mode=_PRIVATE_DIR)
            for path in (self.state, self.logs, self.run, self.certs, self.models, self.outbox, self.kafka, self.etcd):
                path.mkdir(exist_ok=True, mode=_PRIVATE_DIR)
            probe = self.run / ".writable"
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise LocalError(
                f"The state directory {self.root} cannot be written: {error.strerror}.",
                "Set INFERWAY_HOME to a directory that you own.",
            ) from error


def write_atomically(path: Path, data: bytes, mode: int = _PRIVATE_FILE) -> None:
    """Replace `path` so that a reader sees the old or the new content, never a part; `mode` holds from the first byte."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    temporary.replace(path)
