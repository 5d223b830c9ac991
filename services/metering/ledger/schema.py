"""Tables of the ledger in SQLite; `PRAGMA user_version` counts the migrations that a file has seen."""

import sqlite3

# Each migration is one script; append, never edit one that was released.
MIGRATIONS = (
    """
    CREATE TABLE records (           -- every record ever stored, by the name its producer gave it
      producer_id TEXT NOT NULL,
      sequence INTEGER NOT NULL,
      digest BLOB NOT NULL,
      PRIMARY KEY (producer_id, sequence)
    ) WITHOUT ROWID;
    CREATE TABLE producers (
      producer_id TEXT PRIMARY KEY,
      watermark INTEGER NOT NULL,
      highest INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE positions (
      topic TEXT NOT NULL,
      partition INTEGER NOT NULL,
      topic_id TEXT NOT NULL,
      next_offset INTEGER NOT NULL,
      PRIMARY KEY (topic, partition)
    ) WITHOUT ROWID;
    CREATE TABLE requests (
      charge_id TEXT PRIMARY KEY,
      request_id TEXT NOT NULL,
      completion_id TEXT NOT NULL,
      tenant_id TEXT NOT NULL,
      key_id TEXT NOT NULL,
      model TEXT NOT NULL,
      model_version TEXT NOT NULL,
      outcome TEXT NOT NULL,
      finish_reason TEXT NOT NULL,
      prompt_tokens INTEGER NOT NULL,
      cached_prompt_tokens INTEGER NOT NULL,
      completion_tokens INTEGER NOT NULL,
      accepted_unix_ms INTEGER NOT NULL,
      sealed_unix_ms INTEGER NOT NULL,
      num_attempts INTEGER NOT NULL,
      surface TEXT NOT NULL,
      error_reason TEXT NOT NULL,
      ttft_ms INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX requests_by_time ON requests (sealed_unix_ms, charge_id);
    CREATE INDEX requests_by_tenant ON requests (tenant_id, sealed_unix_ms, charge_id);
    CREATE INDEX requests_by_request ON requests (request_id);
    CREATE INDEX requests_by_completion ON requests (completion_id);
    CREATE TABLE attempts (
      attempt_id TEXT PRIMARY KEY,
      charge_id TEXT NOT NULL,
      request_id TEXT NOT NULL,
      tenant_id TEXT NOT NULL,
      model TEXT NOT NULL,
      model_version TEXT NOT NULL,
      replica_id TEXT NOT NULL,
      outcome TEXT NOT NULL,
      prompt_tokens INTEGER NOT NULL,
      cached_prompt_tokens INTEGER NOT NULL,
      output_tokens INTEGER NOT NULL,
      discarded_tokens INTEGER NOT NULL,
      resumed_tokens INTEGER NOT NULL,
      started_unix_ms INTEGER NOT NULL,
      ended_unix_ms INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX attempts_by_charge ON attempts (charge_id);
    CREATE TABLE usage_daily (       -- the roll-up; changes in the transaction that stores a request
      tenant_id TEXT NOT NULL,
      model TEXT NOT NULL,
      day TEXT NOT NULL,
      num_requests INTEGER NOT NULL,
      prompt_tokens INTEGER NOT NULL,
      cached_prompt_tokens INTEGER NOT NULL,
      completion_tokens INTEGER NOT NULL,
      PRIMARY KEY (tenant_id, model, day)
    ) WITHOUT ROWID;
    CREATE TABLE quarantine (        -- what could not be billed as it was: kept for people, never dropped
      topic TEXT NOT NULL,
      topic_id TEXT NOT NULL,
      partition INTEGER NOT NULL,
      near_offset INTEGER NOT NULL,
      digest BLOB NOT NULL,
      fault TEXT NOT NULL,
      payload BLOB NOT NULL,
      PRIMARY KEY (digest, fault)
    ) WITHOUT ROWID;
    CREATE TABLE totals (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
    """,
)


def migrate(connection: sqlite3.Connection) -> None:
    """Brings a file to the newest schema; raises sqlite3.DatabaseError when it is newer than this code."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > len(MIGRATIONS):
        raise sqlite3.DatabaseError(f"the ledger has schema {version}, newer than this version of metering knows ({len(MIGRATIONS)})")
    for number, script in enumerate(MIGRATIONS[version:], start=version + 1):
        connection.executescript(f"BEGIN IMMEDIATE;{script};PRAGMA user_version={number};COMMIT;")
