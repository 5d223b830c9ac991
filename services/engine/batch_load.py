"""How much a batcher has to do."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BatchLoad:
    """Size of everything in the batcher at one moment."""

    num_running: int = 0
    num_waiting: int = 0
    num_waiting_tokens: int = 0
    """Prompt tokens that are not computed yet, of waiting and of running sequences."""
    num_used_blocks: int = 0
    num_preemptions: int = 0
    """Since the start, like all that follows but `num_cached_blocks`."""
    num_cached_blocks: int = 0
    """Blocks that nobody uses and that the prefix cache keeps."""
    num_evictions: int = 0
    """Cached blocks that were given out for something else."""
    num_cache_query_tokens: int = 0
    """Prompt tokens of admitted sequences."""
    num_cache_hit_tokens: int = 0
    """Those of them that were read from the prefix cache."""
