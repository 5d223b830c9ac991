"""Compares what clients were told with what the ledger holds, field by field."""

import asyncio
from collections.abc import Sequence

from cli.clients import Ledger
from cli.smoke_answer import Answer
from inferway.metering.v1 import metering_pb2

DEADLINE_S = 60.0
_POLL_S = 0.2


async def mismatches(client: Ledger, answers: Sequence[Answer]) -> list[str]:
    """Wait until the ledger has a row for every answer, then name every field that differs; rows missing at the deadline are named too."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + DEADLINE_S
    ids = [answer.completion_id for answer in answers]
    while True:
        rows = await client.requests(metering_pb2.ListRequestsRequest(ids=ids, page_size=1000)) if ids else []
        if {row.completion_id for row in rows} >= set(ids) or loop.time() > deadline:
            return [problem for answer in answers for problem in compare(answer, rows)]
        await asyncio.sleep(_POLL_S)


def compare(answer: Answer, rows: Sequence[metering_pb2.LedgerRequest]) -> list[str]:
    """One sentence per difference between an answer and its ledger row."""
    own = [row for row in rows if row.completion_id == answer.completion_id]
    if len(own) != 1:
        return [f"{answer.completion_id}: the ledger has {len(own)} rows instead of one"]
    told = {
        "prompt_tokens": answer.usage.prompt_tokens,
        "completion_tokens": answer.usage.completion_tokens,
        "cached_prompt_tokens": answer.usage.cached_prompt_tokens,
        "model": answer.model,
        "finish_reason": answer.finish_reason,
        "surface": answer.surface.value,
        "outcome": "finished",
    }
    held = {field: getattr(own[0], field) for field in told}
    return [f"{answer.completion_id}: {field} told {told[field]!r}, ledger {held[field]!r}" for field in told if told[field] != held[field]]
