"""The log file of one replica: appended by the replica itself, kept below a bound, and asked for its last word after a death."""

import json
import logging
import shutil
from pathlib import Path

log = logging.getLogger(__name__)

_TAIL_BYTES = 8192
_MAX_WORDS = 300


class ReplicaLog:
    """<home>/logs/replica-<id>.log and one older part beside it, <...>.log.1."""

    def __init__(self, home: Path, replica_id: str) -> None:
        self.path = home / "logs" / f"replica-{replica_id}.log"

    def trim(self, max_bytes: int) -> None:
        """Moves the content aside when it is longer than `max_bytes`, or drops it when there is no room for both.

        The replica appends, so it goes on at the new end; a line that it writes in the moment of the copy may be lost.
        """
        try:
            if self.path.stat().st_size <= max_bytes:
                return
            self._keep_copy()
            with self.path.open("r+b") as file:
                file.truncate(0)
        except OSError as error:
            log.warning("replica log was not trimmed", extra={"fields": {"error": error.strerror}})

    def _keep_copy(self) -> None:
        older = self.path.with_name(self.path.name + ".1")
        try:
            shutil.copyfile(self.path, older)
        except OSError:
            older.unlink(missing_ok=True)

    def last_word(self) -> str:
        """The last line, or the message in it when it is a JSON log line; at most 300 characters, empty when there is none."""
        try:
            with self.path.open("rb") as file:
                file.seek(max(0, self.path.stat().st_size - _TAIL_BYTES))
                lines = file.read().decode("utf-8", "replace").split("\n")
        except OSError:
            return ""
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return _message_of(last)[:_MAX_WORDS]


def _message_of(line: str) -> str:
    try:
        parsed = json.loads(line)
    except ValueError:
        return line
    return str(parsed.get("message", line)) if isinstance(parsed, dict) else line


def trim_logs(home: Path, max_bytes: int) -> None:
    """Trims the log of every replica of the node, past ones included."""
    for path in (home / "logs").glob("replica-*.log"):
        ReplicaLog(home, path.stem.removeprefix("replica-")).trim(max_bytes)
