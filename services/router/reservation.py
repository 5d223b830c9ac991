"""How much KV room a want reserves on a replica."""

from __future__ import annotations

from services.router.want import Want


def blocks_needed(want: Want, block_size: int, max_reserved_output_tokens: int) -> int:
    """KV blocks for the prompt and the output that is likely; 0 when the block size is unknown.

    Most answers end long before their limit, and an engine that runs out of blocks preempts: reserving the whole limit would leave a
    replica idle, so at most ``max_reserved_output_tokens`` of it are reserved.
    """
    if block_size <= 0:
        return 0
    tokens = want.prompt_tokens + min(want.max_output_tokens, max_reserved_output_tokens)
    return -(-tokens // block_size)
