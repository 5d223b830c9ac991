"""What a long prompt does to those who are already being answered: gaps between their tokens while it is computed."""

import asyncio
import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench.connection import Connection, Target
from bench.load import REQUEST_TIMEOUT_S, percentile
from bench.prompts import random_prompt
from bench.recording import Answer, Recording, read_answer
from bench.shape import Shape

LONG = Shape(4096, 0, 4)
SHORT = Shape(128, 0, 256)
NUM_SHORT = 4
_LEAD_S = 1.0
"""The short ones have been decoding for so long when the long prompt comes."""


@dataclass(frozen=True, slots=True)
class HeadOfLine:
    """Gaps of `NUM_SHORT` short requests while a prompt of 4,096 tokens is computed, in milliseconds."""

    engine: str
    itl_ms_p50_before: float
    itl_ms_p50: float
    itl_ms_p99: float
    itl_ms_max: float
    long_ttft_ms: float
    num_gaps: int
    failure: str = ""


async def measure(engine: str, target: Target) -> HeadOfLine:
    """One run; a failure of any request is told in the result."""
    serial = time.time_ns()

    async def ask(shape: Shape, number: int, delay_s: float) -> Recording:
        await asyncio.sleep(delay_s)
        async with Connection(target) as connection:
            return await connection.ask(target.request(random_prompt(shape, number), shape.output), REQUEST_TIMEOUT_S)

    async with asyncio.TaskGroup() as group:
        short = [group.create_task(ask(SHORT, serial + number, 0)) for number in range(NUM_SHORT)]
        long = group.create_task(ask(LONG, serial + NUM_SHORT, _LEAD_S))
    recordings = [long.result(), *(task.result() for task in short)]
    answers = [read_answer(recording) for recording in recordings]
    failure = next((answer.failure for answer in answers if answer.failure), "")
    if failure:
        return HeadOfLine(engine, math.nan, math.nan, math.nan, math.nan, math.nan, 0, failure)
    begin = recordings[0].sent_s
    return summarise(engine, begin, begin + answers[0].arrivals_s[0], recordings[1:], answers[1:], answers[0].arrivals_s[0])


def summarise(
    engine: str, begin_s: float, end_s: float, recordings: Sequence[Recording], answers: Sequence[Answer], long_ttft_s: float
) -> HeadOfLine:
    """Gaps that overlap the time from `begin_s` to `end_s`, beside those that ended before it."""
    before, during = [], []
    for recording, answer in zip(recordings, answers, strict=True):
        moments = [recording.sent_s + at for at in answer.arrivals_s]
        for earlier, later in itertools.pairwise(moments):
            if later <= begin_s:
                before.append(1000 * (later - earlier))
            elif earlier < end_s:
                during.append(1000 * (later - earlier))
    return HeadOfLine(
        engine=engine,
        itl_ms_p50_before=round(percentile(before, 50), 1),
        itl_ms_p50=round(percentile(during, 50), 1),
        itl_ms_p99=round(percentile(during, 99), 1),
        itl_ms_max=round(max(during, default=math.nan), 1),
        long_ttft_ms=round(1000 * long_ttft_s, 1),
        num_gaps=len(during),
    )
