"""Apache Kafka's jars, fetched once per user with Maven into a cache that every mesh of this user shares."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from deploy.local.errors import LocalError
from deploy.local.rotation import last_line

KAFKA_VERSION = "4.4.0"
SCALA_VERSION = "2.13"
LOG4J_VERSION = "2.25.5"  # the log4j-core that this Kafka brings along; the slf4j binding must match it
_FETCH_TIMEOUT_S = 600.0
_REQUIRED_JARS = (f"kafka_{SCALA_VERSION}-{KAFKA_VERSION}.jar", f"log4j-slf4j-impl-{LOG4J_VERSION}.jar")

_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>inferway</groupId>
  <artifactId>local-broker</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_{SCALA_VERSION}</artifactId>
      <version>{KAFKA_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId>
      <artifactId>log4j-slf4j-impl</artifactId>
      <version>{LOG4J_VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""


def cache_directory(environ: Mapping[str, str]) -> Path:
    """Where the jars of this Kafka version are kept for this user."""
    root = environ.get("XDG_CACHE_HOME") or str(Path(environ.get("HOME", "~")).expanduser() / ".cache")
    return Path(root) / "inferway" / f"kafka-{KAFKA_VERSION}"


def is_complete(libs: Path) -> bool:
    """True when `libs` was filled by a fetch that ended well."""
    return all((libs / jar).is_file() for jar in _REQUIRED_JARS)


def can_fetch(environ: Mapping[str, str]) -> bool:
    """True when Maven is there."""
    return shutil.which("mvn", path=environ.get("PATH")) is not None


def ensure(environ: Mapping[str, str]) -> Path:
    """The directory of jars, fetched when it is not complete (about 10 s, 45 MB); raises LocalError when Maven fails."""
    libs = cache_directory(environ)
    if is_complete(libs):
        return libs
    libs.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=libs.parent, prefix=".fetch-") as scratch:
        fetched = _run_maven(Path(scratch), environ)
        if libs.exists() and not is_complete(libs):
            shutil.rmtree(libs)
        try:
            fetched.rename(libs)
        except OSError:
            if not is_complete(libs):  # another mesh of this user may have been faster
                raise
    return libs


def _run_maven(scratch: Path, environ: Mapping[str, str]) -> Path:
    (scratch / "pom.xml").write_text(_POM)
    libs, log = scratch / "libs", scratch / "maven.log"
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={libs}", "-DincludeScope=runtime"]
    remedy = "Check that Maven reaches its repository, or set INFERWAY_LOCAL_BROKER=tansu to go without Apache Kafka."
    with log.open("wb") as output:
        try:
            done = subprocess.run(
                command, cwd=scratch, env=dict(environ), stdout=output, stderr=output, timeout=_FETCH_TIMEOUT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise LocalError(f"Maven could not fetch Apache Kafka {KAFKA_VERSION}: {error}.", remedy) from error
    if done.returncode != 0 or not is_complete(libs):
        reason = last_line(log) or f"exit status {done.returncode}"
        raise LocalError(f"Maven could not fetch Apache Kafka {KAFKA_VERSION}: {reason}", remedy)
    os.chmod(libs, 0o755)
    return libs
