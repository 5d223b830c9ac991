"""Settings of one engine replica, from INFERWAY_ENGINE_* (and INFERWAY_HOME)."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from services.engine.runner import RunnerSettings
from services.engine.runner_registry import RUNNERS
from services.kit.config import load, require

PREFIX = "INFERWAY_ENGINE_"


@dataclass(frozen=True)
class EngineConfig:
    """One replica of one model. Sizes in tokens unless their name says otherwise."""

    model: str
    model_version: str = ""
    """Empty takes the newest of the store."""
    replica_id: str = ""
    """Name of the slot; empty makes one of host name and port."""
    node_id: str = ""
    home: str = ".inferway"
    kernels: str = ""
    """Folder with ready-made libraries of the native kernels, as images have one; where none of them fits, `<home>/kernels` is used."""
    host: str = "127.0.0.1"
    port: int = 0
    advertised_host: str = ""
    """Host under which gateways reach this replica; empty means `host`."""
    metrics_port: int | None = None
    etcd_endpoints: tuple[str, ...] = ()
    """Empty: the replica registers nowhere; for tests and benchmarks."""
    lease_ttl_s: int = 10
    kafka_bootstrap: tuple[str, ...] = ()
    """Empty: attempt records stay in the outbox."""
    outbox_max_bytes: int = 256 * 1024 * 1024
    runner: str = "auto"
    """`torch`: float32 or bfloat16 as `dtype` says; `cpu`: native quantised kernels; `auto`: `cpu` on a CPU, `torch` on a GPU; `sim`."""
    device: str = "cpu"
    dtype: str = ""
    """`float32` or `bfloat16`, which each runner reads in its own way; empty takes what the model's card says, else `float32`."""
    kv_dtype: str = ""
    """Keys and values of the `cpu` runner: `bfloat16`, or `int8` in half the memory; empty takes what the card says, else `bfloat16`."""
    threads: int = 1
    block_size: int = 16
    num_blocks: int = 1024
    max_num_sequences: int = 32
    max_step_tokens: int = 256
    """Most tokens that one step computes: the longest wait of a decoding sequence behind somebody's prompt."""
    max_num_waiting: int = 128
    speculative_tokens: int = 15
    """Most drafts that one step checks for a sequence (drafter.py); 0 turns speculation off. No answer depends on it."""
    heartbeat_bound_s: float = 20.0
    """Older heartbeats make the replica NOT_SERVING while it has work, and the log say where each thread is."""
    heartbeat_exit_s: float = 60.0
    """Still older ones end the process: a step that never returns cannot be ended otherwise."""
    drain_timeout_s: float = 30.0
    message_gap_ms: float = 10.0
    """Least time between two messages to one gateway, but for first tokens and ends: a hundred chunks a second are as smooth as one for
    every step, and where a step takes a few milliseconds they leave the cores to it."""
    log_level: str = "INFO"
    otlp_endpoint: str | None = None
    trace_sample_ratio: float = 0.05
    sim_step_ms: float = 2.0
    sim_eos_every: int = 0

    def __post_init__(self) -> None:
        for name in ("port", "metrics_port"):
            require(0 <= (getattr(self, name) or 0) <= 65535, f"{name} must be from 0 to 65535")
        for name in ("lease_ttl_s", "threads", "block_size", "num_blocks", "max_num_sequences", "outbox_max_bytes"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1")
        for name in ("max_num_waiting", "speculative_tokens", "drain_timeout_s", "message_gap_ms", "sim_step_ms", "sim_eos_every"):
            require(getattr(self, name) >= 0, f"{name} must not be negative")
        require(self.runner in RUNNERS, f"runner must be one of {', '.join(sorted(RUNNERS))}")
        require(self.heartbeat_bound_s > 0, "heartbeat_bound_s must be above 0")
        require(self.heartbeat_exit_s > self.heartbeat_bound_s, "heartbeat_exit_s must be above heartbeat_bound_s")
        require(self.max_step_tokens >= self.max_num_sequences, "max_step_tokens must be at least max_num_sequences")
        require(not self.kafka_bootstrap or bool(self.etcd_endpoints), "kafka_bootstrap needs etcd_endpoints, where the watermark is")

    @property
    def runner_settings(self) -> RunnerSettings:
        """What the runner is told."""
        return RunnerSettings(
            model=self.model,
            version=self.model_version,
            home=Path(self.home),
            kernels=Path(self.kernels) if self.kernels else None,
            device=self.device,
            dtype=self.dtype,
            kv_dtype=self.kv_dtype,
            threads=self.threads,
            block_size=self.block_size,
            num_blocks=self.num_blocks,
            sim_step_ms=self.sim_step_ms,
            sim_eos_every=self.sim_eos_every,
        )


def from_environ(environ: Mapping[str, str]) -> EngineConfig:
    """The settings of the process; raises ConfigError that lists everything wrong with them."""
    defaults = {PREFIX + "HOME": environ["INFERWAY_HOME"]} if environ.get("INFERWAY_HOME") else {}
    return load(EngineConfig, PREFIX, {**defaults, **environ})
