"""The small stand-in for Kafka where Apache Kafka cannot be assembled: Tansu, which keeps everything in memory."""

from deploy.local import binaries, probes
from deploy.local.child_spec import ChildSpec

NAME = "tansu"


def child(port: int) -> ChildSpec:
    """Ready when it hands out metadata. Its records are gone when it stops; the outboxes send them again."""
    url = f"tcp://127.0.0.1:{port}"
    argv = (
        str(binaries.find("tansu")),
        "broker",
        f"--listener-url={url}",
        f"--advertised-listener-url={url}",
        "--storage-engine=memory://tansu/",
    )
    return ChildSpec(name=NAME, argv=argv, probe=probes.kafka(port), ports={"broker": port}, grace_s=3.0)
