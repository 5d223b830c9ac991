"""Drafts: guesses of a sequence's next tokens that one step checks together, because they followed once before.

Prompt lookup (Saxena, 2023): what stood behind the last occurrence of a sequence's last tokens is likely to come again, in code, in
quotations, in tables, and wherever a model goes round in circles. A draft costs a row of a step and no model of its own. A runner keeps
what it would have drawn anyway (`SequenceSlice.num_drafts`), so drafts change how fast an answer comes and nothing else.
"""

import math
from array import array
from collections.abc import Sequence

_LONGEST = 3
"""Most tokens that have to have stood together before; more say hardly more."""
_FIRST = 4
_TRY_EVERY = 16
_WEIGHT = 0.05
_SUREST = 0.999
_TOKEN_BYTES = array("i").itemsize


def price(num_sequences: int) -> float:
    """What a draft has to be worth in a step of so many decoding sequences, as a share of what a token costs without drafts: 0 to 0.9.

    That is what its row costs and, where a batch shares the reading of weights already, a fifth more: tokens that come by several at a
    time come less often, which has to bring something.
    """
    return 0.9 * num_sequences**2 / (num_sequences**2 + 6)


class Odds:
    """How often drafts were right of late, in all sequences of a replica, by how many tokens had stood together before."""

    def __init__(self) -> None:
        self._rates = {1: 0.3, 2: 0.5, 3: 0.8}
        self._num_passed = dict.fromkeys(self._rates, 0)

    def most(self, length: int, price: float, wanted: int) -> int:
        """How many of the wanted drafts are worth their price: the n-th is right where those before it are, at the rate to the power of n.

        One now and then though none is, lest nobody notices when that changes.
        """
        rate = min(self._rates[length], _SUREST)
        if rate >= price:
            return min(wanted, int(math.log(price) / math.log(rate))) if price else wanted
        self._num_passed[length] = (self._num_passed[length] + 1) % _TRY_EVERY
        return 0 if self._num_passed[length] else min(wanted, 1)

    def learn(self, length: int, is_right: bool) -> None:
        """The first draft of some was right, or was not."""
        self._rates[length] += _WEIGHT * (is_right - self._rates[length])


class Drafter:
    """Guesses for one sequence, as many as lately came true: twice as many when all did."""

    def __init__(self, odds: Odds, max_drafts: int) -> None:
        self._odds = odds
        self._max_drafts = max_drafts
        self._packed = bytearray()
        self._num_next = min(_FIRST, max_drafts)
        self._length = _LONGEST

    def propose(self, token_ids: Sequence[int], most: int, price: float) -> list[int]:
        """At most `most` tokens that may follow `token_ids`, which only ever grows at its end."""
        self._packed += array("i", token_ids[len(self._packed) // _TOKEN_BYTES :]).tobytes()
        for length in range(min(_LONGEST, len(token_ids) - 1), 0, -1):
            if begin := self._following(length):
                self._length = length
                return _continued(token_ids, begin, self._odds.most(length, price, min(most, self._num_next)))
        return []

    def learn(self, num_drafts: int, num_right: int) -> None:
        """So many tokens were proposed last, and so many of them came."""
        self._odds.learn(self._length, num_right > 0)
        if num_right < num_drafts:
            self._num_next = max(1, num_right)
        else:
            self._num_next = min(self._max_drafts, max(self._num_next, 2 * num_drafts))

    def _following(self, length: int) -> int:
        """Where the tokens stand that followed the last `length` ones the last time; 0 when these never stood together before."""
        size = length * _TOKEN_BYTES
        last, end = bytes(self._packed[-size:]), len(self._packed) - 1
        while (at := self._packed.rfind(last, 0, end)) % _TOKEN_BYTES and at >= 0:
            end = at + size - 1
        return at // _TOKEN_BYTES + length if at >= 0 else 0


def _continued(token_ids: Sequence[int], begin: int, count: int) -> list[int]:
    """`count` tokens from `begin` on, as if `token_ids` went on like that for ever."""
    period = len(token_ids) - begin
    return [token_ids[begin + at % period] for at in range(count)]
