"""An answer as one JSON document, whatever it looks like."""

import asyncio
from typing import Protocol

from services.gateway.answer import Accepted, Answer, Ending, Piece


class Document(Protocol):
    """Writes one document."""

    def add(self, piece: Piece) -> None:
        """More of one choice."""

    def finish(self, ending: Ending) -> bytes:
        """The document, when nothing follows."""


async def whole_document(document: Document, accepted: Accepted, answer: Answer) -> bytes:
    """The whole answer; log-probabilities are taken as they come, text at the end. Raises the error that ended the answer."""
    if accepted.request.num_logprobs is None:
        for piece in await answer.whole():
            document.add(piece)
    else:
        async for pieces in answer.pieces():
            for piece in pieces:
                document.add(piece)
            await asyncio.sleep(0)  # Others have their turn, also where much has come at once.
    return document.finish(answer.ending)
