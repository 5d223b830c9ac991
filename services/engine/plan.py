"""What the batcher decides for one step, and what the step then did to sequences."""

from collections.abc import Collection
from collections.abc import Sequence as Listing
from dataclasses import dataclass, field

from services.engine.kv_events import KvEvent
from services.engine.runner import SequenceSlice
from services.engine.sequence import Ended, PromptLogprobs, Sampled, Sequence


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
    """Blocks to copy (from, to) before the step, which writes no position that was copied; none is both, none is copied into twice."""
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
    num_drafts: int = 0
    """Sequences for which the step checked drafts."""
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    """Of the drafts, those that were right."""


def slice_of(
    sequence: Sequence, count: int, block_table: Listing[int], forbidden: frozenset[int], drafts: Collection[int] = ()
) -> SequenceSlice:
    """The next `count` tokens of a sequence and drafts of those behind them, with all that a runner has to know of it."""
    start = sequence.num_computed
    end = start + count
    return SequenceSlice(
        sequence_id=sequence.sequence_id,
        token_ids=[*sequence.token_ids[start:end], *drafts],
        start=start,
        block_table=list(block_table),
        sampling=sequence.sampling,
        samples=end == len(sequence.token_ids),
        choice=sequence.choice,
        output_position=sequence.num_output,
        context=sequence.token_ids,
        num_prompt=sequence.num_prompt,
        forbidden=forbidden,
        num_logprobs=sequence.num_logprobs,
        num_prompt_logprobs=sequence.num_prompt_logprobs if sequence.owes_prompt_logprobs else None,
        num_drafts=len(drafts),
    )
