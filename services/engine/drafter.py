"""Drafts: guesses of a sequence's next tokens that one step checks together, because they followed once before.

Prompt lookup (Saxena, 2023): what stood behind the last occurrence of a sequence's last tokens is likely to come again, in code, in
quotations, in tables, and wherever a model goes round in circles. A draft costs a row of a step and no model of its own. A runner keeps
what it would have drawn anyway (`SequenceSlice.num_drafts`), so drafts change how fast an answer comes and nothing else.
"""

from array import array
from collections.abc import Sequence

NGRAM = 3
"""Tokens that must have stood together before; with two, half of the drafts of prose are wrong."""
_FIRST = 2
_MAX_PAUSE = 15
_TOKEN_BYTES = array("i").itemsize


class Drafter:
    """Guesses for one sequence, as many as lately came true: twice as many when all did, fewer when not, none for a while after misses."""

    def __init__(self, max_drafts: int) -> None:
        self._max_drafts = max_drafts
        self._packed = bytearray()
        self._num_next = min(_FIRST, max_drafts)
        self._num_misses = 0
        self._pause = 0

    def propose(self, token_ids: Sequence[int], most: int) -> list[int]:
        """At most `most` tokens that may follow `token_ids`, which only ever grows at its end."""
        if self._pause:
            self._pause -= 1
            return []
        self._packed += array("i", token_ids[len(self._packed) // _TOKEN_BYTES :]).tobytes()
        begin = self._following()
        drafts: list[int] = []
        for at in range(begin, begin + min(most, self._num_next) if begin else 0):
            drafts.append(token_ids[at] if at < len(token_ids) else drafts[at - len(token_ids)])
        return drafts

    def learn(self, num_drafts: int, num_right: int) -> None:
        """So many tokens were proposed, and so many of them came."""
        if num_right == num_drafts:
            self._num_misses = 0
            self._num_next = min(self._max_drafts, max(self._num_next, 2 * num_drafts))
        elif num_right:
            self._num_misses, self._num_next = 0, num_right
        else:
            self._num_misses, self._num_next = self._num_misses + 1, 1
            self._pause = min(_MAX_PAUSE, (1 << self._num_misses) - 1)

    def _following(self) -> int:
        """Where the tokens stand that followed the last ones the last time; 0 when these never stood together before."""
        size = NGRAM * _TOKEN_BYTES
        if len(self._packed) <= size:
            return 0
        last, end = bytes(self._packed[-size:]), len(self._packed) - 1
        while (at := self._packed.rfind(last, 0, end)) % _TOKEN_BYTES and at >= 0:
            end = at + size - 1
        return at // _TOKEN_BYTES + NGRAM if at >= 0 else 0
