"""Writes of a leader that does not know yet that it is none any more."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from services.kit import keyspace
from services.kit.etcd import Election, EtcdClient, LeaseKeeper
from services.scheduler.clients.fleet_store import EtcdFleetStore
from services.scheduler.fleet import Assignment, Deployment
from services.scheduler.plan import Place, Remove, StartDrain
from tests.harness.etcd import EtcdServer

ASSIGNMENT = Assignment("m-0", "a", "m")


class Candidate:
    """One scheduler's claim to the leadership, and its store."""

    def __init__(self, client: EtcdClient, name: str) -> None:
        self.store = EtcdFleetStore(client)
        self.keeper = LeaseKeeper(client)
        self.election = Election(client, self.keeper, keyspace.leader("scheduler"), name, ttl_s=600)


@pytest.fixture
async def client(etcd: EtcdServer) -> AsyncIterator[EtcdClient]:
    client = EtcdClient([etcd.endpoint])
    yield client
    await client.close()


@pytest.fixture
async def candidates(client: EtcdClient) -> AsyncIterator[tuple[Candidate, Candidate]]:
    one, two = Candidate(client, "one"), Candidate(client, "two")
    tasks = [asyncio.ensure_future(each.keeper.run()) for each in (one, two)]
    yield one, two
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_fencing_former_leader_writes_nothing(client: EtcdClient, candidates: tuple[Candidate, Candidate]) -> None:
    one, two = candidates
    former = await one.election.campaign()
    assert await one.store.apply(Place(ASSIGNMENT, "first"), former)
    await client.delete(keyspace.leader("scheduler"))  # The lease ended and the former leader has not noticed.
    leader = await two.election.campaign()
    assert leader.token > former.token
    (placed,) = (await one.store.read()).assignments
    assert not former.lost.is_set()
    for change in (Place(Assignment("m-1", "a", "m"), ""), StartDrain(placed, ""), Remove(placed, "")):
        assert not await one.store.apply(change, former)
    assert not await one.store.write_decisions("m", ["late"], former)
    assert (await two.store.read()).assignments == (placed,)
    assert await two.store.read_decisions("m") == []
    assert await two.store.apply(Remove(placed, ""), leader)


async def test_fencing_leader_never_overwrites_what_changed_since_it_looked(candidates: tuple[Candidate, Candidate]) -> None:
    one, _ = candidates
    leader = await one.election.campaign()
    assert await one.store.apply(Place(ASSIGNMENT, ""), leader)
    assert not await one.store.apply(Place(ASSIGNMENT, ""), leader), "a name is given once"
    (seen,) = (await one.store.read()).assignments
    assert await one.store.write_assignment(seen), "an operator's drain, for example"
    assert not await one.store.apply(Remove(seen, ""), leader)


async def test_store_deployment_is_written_only_over_what_was_read(candidates: tuple[Candidate, Candidate]) -> None:
    store = candidates[0].store
    assert await store.read_deployment("m") is None
    first = Deployment("m", "a" * 12, 2, {"threads": "2"}, 30, 1)
    assert await store.write_deployment(first)
    assert not await store.write_deployment(first)
    stored = await store.read_deployment("m")
    assert stored == first and stored.revision > 0
    assert not await store.delete_deployment(first)
    assert await store.delete_deployment(stored)


async def test_store_broken_value_is_skipped_and_the_rest_is_read(client: EtcdClient, candidates: tuple[Candidate, Candidate]) -> None:
    store = candidates[0].store
    await client.put(keyspace.deployment("broken"), b"{ not json")
    await client.put(keyspace.node("broken"), b"\xff")
    await client.put(keyspace.deployment("empty"), b"{}")
    await client.put(keyspace.assignment("a", "m-0"), b'{"replicaId": "m-0", "nodeId": "b", "model": "m"}')
    await store.write_deployment(Deployment("m"))
    fleet = await store.read()
    assert (set(fleet.deployments), set(fleet.nodes), fleet.assignments) == ({"m"}, set(), ())


@pytest.mark.parametrize(
    "key",
    [
        keyspace.deployment("m"),
        keyspace.node("a"),
        keyspace.assignment("a", "m-0"),
        keyspace.replica("m", "m-0"),
        keyspace.cordon("a"),
    ],
)
async def test_store_tells_of_changes_of_every_kind(client: EtcdClient, candidates: tuple[Candidate, Candidate], key: str) -> None:
    told = asyncio.Semaphore(0)
    task = asyncio.ensure_future(candidates[0].store.follow(told.release))
    async with asyncio.timeout(20):
        for _ in range(5):  # One call for each watch that begins, whatever happens.
            await told.acquire()
        while told.locked():  # The watch may not stand yet when the first writes are made.
            await client.put(key, b"{}")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    await told.acquire()
                    break
    task.cancel()
    await asyncio.wait({task})
