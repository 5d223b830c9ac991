"""The feed of an attempt: deltas in order, merged while nobody reads, and the first end is the end."""

import asyncio

from services.gateway.attempt import AttemptFeed, Delta, EndReason, Failed, Finished
from services.gateway.logprobs import TokenLogprob, TokenLogprobs

ENTRY = TokenLogprobs(TokenLogprob(7, b"t", -0.5), ())
END = Finished(EndReason.STOP, 3, 0)


async def test_next_merges_what_nobody_read_and_then_ends() -> None:
    feed = AttemptFeed("a-1", lambda _: None)
    feed.push(Delta((1, 2), "x", 4, (ENTRY, ENTRY)))
    feed.push(Delta((), "y", prompt_logprobs=(ENTRY,)))
    feed.push(Delta((3,), "", logprobs=(ENTRY,)))
    feed.end(END)
    assert await feed.next() == Delta((1, 2, 3), "xy", 4, (ENTRY, ENTRY, ENTRY), (ENTRY,))
    assert await feed.next() == END
    assert await feed.next() == END


async def test_next_waits_for_what_comes() -> None:
    feed = AttemptFeed("a-1", lambda _: None)
    asyncio.get_running_loop().call_soon(feed.push, Delta((7,), ""))
    async with asyncio.timeout(10):
        assert await feed.next() == Delta((7,), "", 0)
        asyncio.get_running_loop().call_soon(feed.end, END)
        assert await feed.next() == END


async def test_end_the_first_one_counts_and_nothing_follows() -> None:
    feed = AttemptFeed("a-1", lambda _: None)
    feed.end(END)
    feed.push(Delta((1,), "late"))
    feed.end(Failed("REPLICA_LOST", "", retryable=True, lost=True))
    assert await feed.next() == END


async def test_cancel_asks_the_engine_until_the_end() -> None:
    asked: list[str] = []
    feed = AttemptFeed("a-1", asked.append)
    feed.cancel()
    feed.end(END)
    feed.cancel()
    assert asked == ["a-1"]
