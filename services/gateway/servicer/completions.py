"""The answers of POST /v1/completions, as a document or as events."""

from collections.abc import AsyncIterator, Awaitable

from services.gateway.answer import Accepted, Answer
from services.gateway.completion_json import CompletionDocument, CompletionWriter
from services.gateway.servicer.documents import whole_document
from services.gateway.servicer.events import stream_events


def completion_events(accepted: Accepted, answer: Answer) -> AsyncIterator[bytes]:
    """See `stream_events`."""
    return stream_events(CompletionWriter(accepted), accepted, answer)


def completion_body(accepted: Accepted, answer: Answer) -> Awaitable[bytes]:
    """See `whole_document`."""
    return whole_document(CompletionDocument(accepted), accepted, answer)
