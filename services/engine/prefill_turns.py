"""Who computes how much of a prompt in one step: a pure rule, so that no long prompt holds up short ones and none waits for ever."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

OLDEST_SHARE = 4
"""The first in order may use a fourth of the budget before others."""


@dataclass(frozen=True, slots=True)
class Want:
    """One prompt that is not computed yet."""

    priority: int
    num_tokens: int
    """Left to compute."""


def prefill_turns(wants: Sequence[Want], budget: int) -> Iterator[tuple[int, int]]:
    """Indexes of `wants`, which stand in order of urgency (see Sequence.order), and how many tokens each may take at its turn.

    Of higher classes first, in a class the one with the least left goes first, so that a short prompt waits for nobody's long one and of
    equal ones that which has begun is ended. Before that the most urgent of all may take its share: however many short ones come, and of
    whatever class, it ends; then it is another one's. Indexes occur twice; who has nothing left lets its turn pass.
    """
    if len(wants) > 1:
        yield 0, max(1, budget // OLDEST_SHARE)
    for index in sorted(range(len(wants)), key=lambda index: (-wants[index].priority, wants[index].num_tokens, index)):
        yield index, budget
