"""The answers of POST /v1/completions, as a document or as events."""

from collections.abc import AsyncIterator

from services.gateway import openai_json
from services.gateway.answer import Accepted, Answer
from services.gateway.completion_json import CompletionWriter, completion_document
from services.kit.errors import InferwayError
from services.kit.status import openai_error


async def completion_events(accepted: Accepted, answer: Answer) -> AsyncIterator[bytes]:
    """One or more whole events at a time: text, then finish, usage if asked for, and [DONE]; an error event instead."""
    chunks = CompletionWriter(accepted)
    try:
        async for pieces in answer.pieces():
            yield b"".join(map(chunks.piece, pieces))
    except InferwayError as error:
        yield openai_json.error_event(openai_error(error))
        raise
    ending = answer.ending
    usage = chunks.usage(ending.usage) if accepted.request.include_usage else b""
    yield chunks.finish(ending.finish_reasons) + usage + openai_json.DONE


async def completion_body(accepted: Accepted, answer: Answer) -> bytes:
    """The whole answer."""
    return completion_document(accepted, await answer.whole(), answer.ending)
