"""What the batcher decides for one step, and what the step then did to sequences."""

from dataclasses import dataclass, field

from services.engine.kv_events import KvEvent
from services.engine.runner import SequenceSlice
from services.engine.sequence import Ended, PromptLogprobs, Sampled


@dataclass(frozen=True, slots=True)
class Begun:
    """A sequence was admitted: for the first time, or again after a preemption."""

    sequence_id: int
    num_cached: int
    """Prompt tokens read from the prefix cache the first time."""


@dataclass(slots=True)
class Plan:
    """What one step computes, and who was dropped while planning."""

    slices: list[SequenceSlice] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    copies: list[tuple[int, int]] = field(default_factory=list)
    """Blocks to copy (from, to) before the step, which writes no position that was copied."""
    begun: list[Begun] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        """Tokens that the step computes."""
        return sum(len(part.token_ids) for part in self.slices)


@dataclass(slots=True)
class StepEvents:
    """What a step did to sequences. Of one sequence, prompt log-probabilities come before its first token and a token before its end."""

    sampled: list[Sampled] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    prompt_logprobs: list[PromptLogprobs] = field(default_factory=list)
    kv: list[KvEvent] = field(default_factory=list)
    """Changes of the prefix cache, in order."""
