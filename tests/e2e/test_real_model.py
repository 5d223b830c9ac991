"""The mesh on the real model: right answers, an exact bill, and a stream that survives the death of its replica word for word."""

from __future__ import annotations

import asyncio
import json
import math
import signal
from collections.abc import Iterator

import pytest

from tests.harness import smollm
from tests.harness.bill import Bill
from tests.harness.cpu_kernels import ready_made
from tests.harness.measure import loads
from tests.harness.mesh import Mesh, running_mesh
from tests.harness.rest import Rest, said_by_choice
from tests.harness.traffic import Clients, Told

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

QUESTION = "Explain in a few sentences why the sky is blue."


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    smollm.smollm()
    models = smollm.HOME / "models"
    environ = {"INFERWAY_ENGINE_RUNNER": "auto", "INFERWAY_LOCAL_BROKER": "tansu", **ready_made()}
    with running_mesh(tmp_path_factory.mktemp("real"), models, **environ) as mesh:
        yield mesh


async def test_answer_knows_the_capital_of_france(mesh: Mesh) -> None:
    async with Clients(mesh) as clients:
        told = await clients.ask_whole("What is the capital of France?")
    assert "Paris" in told.text


async def test_choices_and_logprobs_are_what_the_model_says(mesh: Mesh) -> None:
    fields = {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 24, "logprobs": True, "top_logprobs": 5}
    async with Rest(mesh) as rest:
        greedy = await rest.answer(**fields, temperature=0, n=2)
        drawn = await rest.answer(**fields, temperature=1, seed=7, n=4)
        again = await rest.chunks(**fields, temperature=1, seed=7, n=4)
        pushed = await rest.answer(**{**fields, "temperature": 0, "frequency_penalty": 2, "repetition_penalty": 1.5})
    first, second = greedy["choices"]
    assert first["message"] == second["message"]
    for token in first["logprobs"]["content"]:
        assert (token["token"], token["logprob"]) == (token["top_logprobs"][0]["token"], token["top_logprobs"][0]["logprob"])
        assert [top["logprob"] for top in token["top_logprobs"]] == sorted((top["logprob"] for top in token["top_logprobs"]), reverse=True)
        assert 0 < sum(math.exp(top["logprob"]) for top in token["top_logprobs"]) < 1.0001
    texts = [choice["message"]["content"] for choice in drawn["choices"]]
    assert len(set(texts)) == 4
    assert said_by_choice(again) == texts
    assert pushed["choices"][0]["message"] != first["message"]


def test_smoke_on_the_real_model_finds_nothing_wrong(mesh: Mesh) -> None:
    done = mesh.run("smoke", "--json", "--requests", "12", "--max-tokens", "12")
    report = json.loads(done.stdout)
    assert (done.returncode, report["ok"], report["failed"], report["ledger_equal"]) == (0, 12, [], True)


async def test_stream_survives_the_death_of_its_replica_word_for_word(mesh: Mesh) -> None:
    async with Clients(mesh) as clients:
        reference = await clients.ask_stream(QUESTION, max_tokens=200)
        begun = asyncio.Event()
        task = asyncio.ensure_future(clients.ask_stream(QUESTION, max_tokens=200, begun=begun))
        await asyncio.wait_for(begun.wait(), 60)
        slot = await busy_replica(mesh)
        mesh.replicas()[slot].signal(signal.SIGKILL)
        resumed = await task
    assert (resumed.failure, resumed.text, resumed.completion_tokens) == ("", reference.text, reference.completion_tokens)
    await check_attempts(mesh, resumed)


async def busy_replica(mesh: Mesh) -> str:
    """The slot that makes the one running answer."""
    running = [slot for slot, load in zip(mesh.ports_of_replicas(), await loads(mesh), strict=True) if load.num_running]
    assert running, "the answer was complete before its replica was found"
    return running[0]


async def check_attempts(mesh: Mesh, told: Told) -> None:
    """Billed as if nothing had happened; the second attempt says that it went on behind delivered tokens."""
    await Bill(mesh).until_equal([told])
    (row,) = (await Bill(mesh).rows([told.completion_id]))[told.completion_id]
    assert row.attempts[-1].resumed_tokens > 0
