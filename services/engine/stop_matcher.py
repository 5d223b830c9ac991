"""Finds the first stop string in a growing text and holds back only what may still become one."""

from collections.abc import Sequence


class StopMatcher:
    """Takes text in pieces of any size; what it says does not depend on where the pieces are cut.

    The stop string that is complete first wins; of several that are complete at the same character the longest. Costs constant time per
    character and stop string (Knuth, Morris and Pratt 1977).
    """

    def __init__(self, stops: Sequence[str], include_stop: bool = False) -> None:
        """With `include_stop` the stop string itself counts as text before the end."""
        if not all(stops):
            raise ValueError("a stop string must not be empty")
        self._stops = [(stop, _fallbacks(stop)) for stop in sorted(stops, key=len, reverse=True)]
        self._matched = [0] * len(stops)
        self._held = ""
        self._include_stop = include_stop
        self.stop: str | None = None
        """The stop string that matched; None before."""

    def push(self, text: str) -> str:
        """Text that is certain not to be part of a stop string. After a match everything is swallowed."""
        if not self._stops or not text:
            return text
        if self.stop is not None:
            return ""
        text = self._held + text
        for end in range(len(self._held), len(text)):
            for index, (stop, fallbacks) in enumerate(self._stops):
                self._matched[index] = _advance(stop, fallbacks, self._matched[index], text[end])
                if self._matched[index] == len(stop):
                    self.stop, self._held = stop, ""
                    return text[: end + 1 - (0 if self._include_stop else len(stop))]
        keep = len(text) - max(self._matched)
        self._held = text[keep:]
        return text[:keep]

    def finish(self) -> str:
        """The text is over: what was held back is no stop string."""
        held, self._held = self._held, ""
        return held


def _advance(stop: str, fallbacks: list[int], matched: int, character: str) -> int:
    while matched and stop[matched] != character:
        matched = fallbacks[matched - 1]
    return matched + 1 if stop[matched] == character else 0


def _fallbacks(stop: str) -> list[int]:
    """For every prefix of `stop` the length of its longest proper prefix that is also its suffix."""
    lengths = [0]
    for character in stop[1:]:
        matched = lengths[-1]
        while matched and stop[matched] != character:
            matched = lengths[matched - 1]
        lengths.append(matched + 1 if stop[matched] == character else 0)
    return lengths
