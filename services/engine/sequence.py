"""One sequence of tokens as the batcher sees it: what it needs, how far it is computed, and why it ended."""

import enum
from collections.abc import Sequence as Listing
from dataclasses import dataclass, field

from services.engine.drafter import Drafter
from services.engine.runner import SamplingParams, TokenLogprobs

AGEING_S = 5.0
"""Seconds of waiting that are worth one priority class."""


class EndReason(enum.Enum):
    """Why a sequence left the engine."""

    STOP = "stop"
    """The end-of-sequence token, or a stop string found by the reader of the text."""
    LENGTH = "length"
    CANCELLED = "cancelled"
    DEADLINE = "deadline"
    QUEUE_FULL = "queue_full"
    """Never taken: the waiting room is full."""
    NON_FINITE_LOGITS = "non_finite_logits"
    STEP_FAILED = "step_failed"
    DRAINED = "drained"
    """Still running when the time of a drain was up."""


@dataclass(slots=True)
class Sequence:
    """Owned by the batcher from `Batcher.add` until its `Ended`. Deadlines are seconds of the monotonic clock."""

    sequence_id: int
    token_ids: list[int]
    """Prompt, then tokens that an earlier attempt delivered, then tokens sampled here."""
    num_prompt: int
    max_output_tokens: int
    """Delivered tokens included."""
    sampling: SamplingParams = field(default_factory=SamplingParams)
    num_delivered: int = 0
    choice: int = 0
    priority: int = 0
    deadline_s: float | None = None
    ignore_eos: bool = False
    min_output_tokens: int = 0
    """Delivered tokens included; before so many neither an end-of-sequence nor a stop token may be drawn."""
    stop_token_ids: frozenset[int] = frozenset()
    """Tokens that end the sequence as an end-of-sequence token does."""
    num_logprobs: int | None = None
    num_prompt_logprobs: int | None = None
    """When set the prefix cache is not read before they are given out: a cached position has no logits."""
    num_prompt_logprobs_given: int = 0
    """Of so many prompt tokens, the second one first, they were given out."""
    cache_salt: bytes = b""
    """Sequences of different salts share no cached blocks."""
    num_cached: int = 0
    """Prompt tokens read from the prefix cache when the sequence was first admitted."""
    arrived_s: float = 0.0
    """When it was accepted, in seconds of the monotonic clock."""
    num_computed: int = 0
    """Positions in the KV cache."""
    num_lost: int = 0
    """Positions that were computed when it was preempted last."""
    num_discarded: int = 0
    """Positions that were computed again after a preemption."""
    num_overtakes: int = 0
    """How many later sequences were admitted before it."""
    is_running: bool = False
    """Whether it is in the batch."""
    is_begun: bool = False
    """Whether it was admitted before."""
    num_indexed_blocks: int = 0
    """Its first so many blocks are in the prefix cache."""
    block_hashes: list[bytes] = field(default_factory=list, repr=False)
    """Root and full blocks, as far as they were needed."""
    arrival: int = 0
    """Set by the batcher; kept through preemption."""
    drafter: Drafter | None = field(default=None, repr=False)
    """Made by the batcher when the sequence first decodes, where speculation is on."""

    @property
    def num_uncomputed(self) -> int:
        """Tokens whose KV entries do not exist yet; 1 while decoding."""
        return len(self.token_ids) - self.num_computed

    @property
    def owes_prompt_logprobs(self) -> bool:
        """Whether log-probabilities of its prompt are wanted that were not given out yet."""
        return self.num_prompt_logprobs is not None and self.num_prompt_logprobs_given < self.num_prompt - 1

    @property
    def num_output(self) -> int:
        """Output tokens so far, delivered ones included; the position of the next one."""
        return len(self.token_ids) - self.num_prompt

    @property
    def order(self) -> tuple[float, int]:
        """Who goes first: the least. The greatest is preempted first.

        Every AGEING_S seconds of waiting raise a sequence by one priority class: urgency = priority + (now - arrived_s) / AGEING_S. As all
        age alike, `now` changes no comparison, so the order of two sequences is fixed when they arrive.
        """
        return (self.arrived_s - AGEING_S * self.priority, self.arrival)


@dataclass(frozen=True, slots=True)
class Sampled:
    """A token that a step gave to a sequence."""

    sequence_id: int
    token_id: int
    logprobs: TokenLogprobs | None = None


@dataclass(frozen=True, slots=True)
class PromptLogprobs:
    """Log-probabilities of prompt tokens that a step gave to a sequence, the next ones in order of position."""

    sequence_id: int
    logprobs: Listing[TokenLogprobs]


@dataclass(frozen=True, slots=True)
class Ended:
    """A sequence has left the batcher and owns no blocks any more."""

    sequence_id: int
    reason: EndReason
    num_discarded: int = 0
    """Positions recomputed after preemption."""
    detail: str = ""
    """A sentence for people, without prompt or answer text."""
    stop_token_id: int | None = None
    """The token that ended it, for STOP by an end-of-sequence or stop token."""
