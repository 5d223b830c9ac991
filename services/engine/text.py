"""The text of one answer, made token by token: whole characters only, nothing of a stop string, nothing that was delivered before."""

import codecs
from collections.abc import Sequence

from services.engine.stop_matcher import StopMatcher
from services.engine.token_bytes import TokenBytes

_NEW_DECODER = codecs.getincrementaldecoder("utf-8")


class TextStream:
    """Turns token ids into text that is final: joined, the pieces are the decoded answer up to the first stop string.

    Bytes that are no UTF-8 become U+FFFD as in a decode of the whole; a character that is incomplete at the end is dropped.
    `num_delivered_bytes` of UTF-8 at the start were sent by an earlier attempt and are not returned again. Stop strings are looked for only
    in the text of tokens after the first `num_unstoppable`; with `include_stop` the one that is found is part of the text.
    """

    def __init__(
        self,
        vocabulary: TokenBytes,
        stops: Sequence[str] = (),
        num_delivered_bytes: int = 0,
        num_unstoppable: int = 0,
        include_stop: bool = False,
    ) -> None:
        self._vocabulary = vocabulary
        self._decoder = _NEW_DECODER(errors="replace")
        self._matcher = StopMatcher(stops, include_stop)
        self._skip = num_delivered_bytes
        self._num_unstoppable = num_unstoppable

    @property
    def matched_stop(self) -> str | None:
        """The stop string that ended the text; None while there was none."""
        return self._matcher.stop

    def push(self, token_id: int) -> str:
        """Text that became certain with this token."""
        text = self._decoder.decode(self._vocabulary[token_id])
        if self._num_unstoppable > 0:
            self._num_unstoppable -= 1
            return self._beyond_delivered(text)
        return self._beyond_delivered(self._matcher.push(text))

    def finish(self, last_token_id: int | None = None) -> str:
        """Text that was held back as a possible stop string, then that of `last_token_id`; call it once, at the end."""
        text = self._matcher.finish()
        if last_token_id is not None:
            text += self._decoder.decode(self._vocabulary[last_token_id])
        return self._beyond_delivered(text)

    def _beyond_delivered(self, text: str) -> str:
        if self._skip == 0 or not text:
            return text
        encoded = text.encode()
        skipped, self._skip = self._skip, max(0, self._skip - len(encoded))
        return encoded[skipped:].decode(errors="ignore")
