"""An answer as server-sent events, whatever its chunks look like."""

from collections.abc import AsyncIterator

from services.gateway.answer import Accepted, Answer
from services.gateway.openai_json import DONE, EventWriter, error_event
from services.kit.errors import InferwayError
from services.kit.status import openai_error


async def stream_events(chunks: EventWriter, accepted: Accepted, answer: Answer) -> AsyncIterator[bytes]:
    """One or more whole events at a time: text, then finish, usage if asked for, and [DONE]; an error event instead."""
    try:
        async for pieces in answer.pieces():
            yield b"".join(map(chunks.piece, pieces))
    except InferwayError as error:
        yield error_event(openai_error(error))
        raise
    ending = answer.ending
    usage = chunks.usage(ending.usage) if accepted.request.include_usage else b""
    yield chunks.finish(ending.finish_reasons) + usage + DONE
