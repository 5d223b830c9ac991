"""The answers of POST /v1/completions, as a document or as events."""

from collections.abc import AsyncIterator

from services.gateway.answer import Accepted, Answer
from services.gateway.completion_json import CompletionWriter, completion_document
from services.gateway.servicer.events import stream_events


def completion_events(accepted: Accepted, answer: Answer) -> AsyncIterator[bytes]:
    """See `stream_events`."""
    return stream_events(CompletionWriter(accepted), accepted, answer)


async def completion_body(accepted: Accepted, answer: Answer) -> bytes:
    """The whole answer."""
    return completion_document(accepted, await answer.whole(), answer.ending)
