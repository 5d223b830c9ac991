"""A real one-node Apache Kafka (KRaft) whose data survive kill -9, tuned for a small machine and a quick restart."""

import base64
import subprocess
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from deploy.local import probes
from deploy.local.child_spec import ChildSpec
from deploy.local.errors import LocalError
from deploy.local.home import write_atomically

NAME = "kafka"
_FORMAT_TIMEOUT_S = 60.0
_HEAP = ("-Xms128m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-XX:-UsePerfData")

_LOG4J = """status = warn
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %p %c{1} %m%n
logger.server.name = kafka.server
logger.server.level = info
"""


@dataclass(frozen=True)
class KafkaBroker:
    """One broker and controller in one process. `libs` holds the jars; everything else lies below `directory`."""

    java: Path
    libs: Path
    directory: Path
    port: int
    controller_port: int
    cluster_id: str = field(default_factory=lambda: base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("="))
    """Counts when the storage is formatted."""

    def prepare(self) -> None:
        """Write the settings and format the storage once; raises LocalError when the format tool fails."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(self._properties, self.properties().encode())
        write_atomically(self._log4j, _LOG4J.encode())
        if not (self._data / "meta.properties").exists():
            self._format()

    def child(self) -> ChildSpec:
        """Ready when the broker is registered and hands out metadata."""
        return ChildSpec(
            name=NAME,
            argv=self.argv(),
            probe=probes.kafka(self.port),
            ports={"broker": self.port, "controller": self.controller_port},
            grace_s=15.0,
        )

    def argv(self) -> tuple[str, ...]:
        """The broker's command line; `prepare` must have run."""
        return (*self._java_command(), "kafka.Kafka", str(self._properties))

    def properties(self) -> str:
        """server.properties. The short broker session makes a restart after kill -9 quick: the controller waits for the old one to end."""
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(self._data),
            "num.partitions": "1",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "share.coordinator.state.topic.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "1000",
            # By default an empty record twice a second shows a quorum of several that it lives.
            "metadata.max.idle.interval.ms": "0",
            "background.threads": "2",
            "group.coordinator.threads": "1",
            "share.coordinator.threads": "1",
            "num.network.threads": "2",
            "num.io.threads": "2",
            "num.recovery.threads.per.data.dir": "1",
            "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
            "log.retention.hours": "168",
        }
        return "".join(f"{name}={value}\n" for name, value in settings.items())

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    @property
    def _properties(self) -> Path:
        return self.directory / "server.properties"

    @property
    def _log4j(self) -> Path:
        return self.directory / "log4j2.properties"

    def _java_command(self) -> tuple[str, ...]:
        classpath = ":".join(str(jar) for jar in sorted(self.libs.glob("*.jar")))
        return (str(self.java), *_HEAP, f"-Dlog4j2.configurationFile={self._log4j}", "-cp", classpath)

    def _format(self) -> None:
        command = (*self._java_command(), "kafka.tools.StorageTool", "format", "--ignore-formatted")
        # With "=": one id in 64 begins with a dash, which a bare argument must not.
        command = (*command, f"--cluster-id={self.cluster_id}", "-c", str(self._properties))
        remedy = f"Look at {self._properties}, or remove {self.directory} to begin with an empty broker."
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_FORMAT_TIMEOUT_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise LocalError(f"Kafka's storage could not be formatted: {error}.", remedy) from error
        if done.returncode != 0:
            reason = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no output"]
            raise LocalError(f"Kafka's storage could not be formatted: {reason[0]}", remedy)
