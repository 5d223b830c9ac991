"""What operators may ask for, and what happens when two ask at once."""

from dataclasses import replace

import pytest

from services.kit.errors import FieldError, NotFound, Unavailable
from services.kit.etcd import EtcdUnavailable
from services.scheduler.desired_state import MAX_REPLICAS, DesiredState
from services.scheduler.fleet import Assignment, Deployment
from tests.harness.fleets import node
from tests.harness.manual_timing import ManualTiming
from tests.harness.memory_fleet_store import MemoryFleetStore


@pytest.fixture
def store() -> MemoryFleetStore:
    return MemoryFleetStore()


@pytest.fixture
def desired(store: MemoryFleetStore) -> DesiredState:
    return DesiredState(store, ManualTiming(unix_ms=1_000_000), default_drain_timeout_s=30)


async def test_deploy_new_model_gets_generation_1_and_the_default_drain_timeout(desired: DesiredState, store: MemoryFleetStore) -> None:
    stored = await desired.deploy(Deployment("m", num_replicas=2, drain_timeout_s=0))
    assert (stored.generation, stored.drain_timeout_s) == (1, 30)
    assert store.deployments["m"] == stored


async def test_deploy_same_again_changes_nothing(desired: DesiredState, store: MemoryFleetStore) -> None:
    wish = Deployment("m", num_replicas=2, engine_settings={"threads": "2"})
    await desired.deploy(wish)
    before = store.deployments["m"].revision
    assert (await desired.deploy(replace(wish, generation=77))).generation == 1
    assert store.deployments["m"].revision == before


async def test_deploy_change_counts_the_generation(desired: DesiredState) -> None:
    await desired.deploy(Deployment("m", num_replicas=2))
    assert (await desired.deploy(Deployment("m", num_replicas=2, engine_settings={"threads": "2"}))).generation == 2


async def test_deploy_lost_race_is_repeated_on_what_the_other_wrote(desired: DesiredState, store: MemoryFleetStore) -> None:
    await desired.deploy(Deployment("m", num_replicas=1))

    def other() -> None:
        store.put_deployment(replace(store.deployments["m"], num_replicas=5, generation=2))

    read = store.read_deployment

    async def read_then_lose(model: str) -> Deployment | None:
        stored = await read(model)
        store.before_write, store.read_deployment = other, read  # type: ignore[method-assign]
        return stored

    store.read_deployment = read_then_lose  # type: ignore[method-assign]
    stored = await desired.scale("m", 3)
    assert (stored.num_replicas, stored.generation) == (3, 3)


@pytest.mark.parametrize(
    ("deployment", "param"),
    [
        (Deployment(""), "deployment.model"),
        (Deployment("../m"), "deployment.model"),
        (Deployment("M"), "deployment.model"),
        (Deployment("m" * 101), "deployment.model"),
        (Deployment("m", "newest"), "deployment.model_version"),
        (Deployment("m", num_replicas=MAX_REPLICAS + 1), "deployment.num_replicas"),
        (Deployment("m", drain_timeout_s=86401), "deployment.drain_timeout_s"),
        (Deployment("m", engine_settings={"Threads": "2"}), "deployment.engine_settings[Threads]"),
        (Deployment("m", engine_settings={"port": "1"}), "deployment.engine_settings[port]"),
        (Deployment("m", engine_settings={"kernels": "/tmp"}), "deployment.engine_settings[kernels]"),
        (Deployment("m", engine_settings={"threads": ""}), "deployment.engine_settings[threads]"),
        (Deployment("m", engine_settings={"threads": "1\nPATH=x"}), "deployment.engine_settings[threads]"),
        (Deployment("m", engine_settings={f"s{n}": "1" for n in range(65)}), "deployment.engine_settings"),
    ],
)
async def test_deploy_bad_field_is_named_and_nothing_is_stored(
    desired: DesiredState, store: MemoryFleetStore, deployment: Deployment, param: str
) -> None:
    with pytest.raises(FieldError) as caught:
        await desired.deploy(deployment)
    assert caught.value.param == param
    assert store.deployments == {}


@pytest.mark.parametrize("model", ["unknown", "", "../x"])
async def test_scale_and_undeploy_of_what_is_not_deployed(desired: DesiredState, model: str) -> None:
    with pytest.raises(NotFound) as caught:
        await desired.scale(model, 1)
    assert caught.value.reason == "MODEL_NOT_FOUND"
    with pytest.raises(NotFound):
        await desired.undeploy(model)


async def test_undeploy_removes_the_wish_only(desired: DesiredState, store: MemoryFleetStore) -> None:
    await desired.deploy(Deployment("m", num_replicas=1))
    store.put_assignment(Assignment("m-0", "a", "m"))
    await desired.undeploy("m")
    assert store.deployments == {}
    assert not store.assigned["m-0"].draining


async def test_registry_away_is_told(desired: DesiredState, store: MemoryFleetStore) -> None:
    store.away = True
    with pytest.raises(EtcdUnavailable):
        await desired.deploy(Deployment("m"))


async def test_endless_contention_ends_as_unavailable(desired: DesiredState, store: MemoryFleetStore) -> None:
    async def refuse(_deployment: Deployment) -> bool:
        return False

    store.write_deployment = refuse  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        await desired.deploy(Deployment("m"))


async def test_drain_replica_sets_the_deadline_and_only_ever_shortens_it(desired: DesiredState, store: MemoryFleetStore) -> None:
    store.put_assignment(Assignment("m-0", "a", "m", drain_timeout_s=30))
    assert await desired.drain_replica("m-0", None) == ["m-0"]
    assert store.assigned["m-0"].drain_deadline_unix_ms == 1_030_000
    await desired.drain_replica("m-0", 60)
    assert store.assigned["m-0"].drain_deadline_unix_ms == 1_030_000
    await desired.drain_replica("m-0", 5)
    assert store.assigned["m-0"].drain_deadline_unix_ms == 1_005_000


async def test_drain_takes_as_long_as_the_deployment_says_today(desired: DesiredState, store: MemoryFleetStore) -> None:
    store.nodes["a"] = node("a")
    store.put_deployment(Deployment("m", num_replicas=2, drain_timeout_s=7))
    for replica_id in ("m-0", "m-1"):
        store.put_assignment(Assignment(replica_id, "a", "m", drain_timeout_s=60))
    await desired.drain_replica("m-0", None)
    await desired.drain_node("a", None)
    assert {each.drain_deadline_unix_ms for each in store.assigned.values()} == {1_007_000}


async def test_drain_node_drains_all_of_it_and_marks_it(desired: DesiredState, store: MemoryFleetStore) -> None:
    store.nodes["a"] = node("a")
    for replica_id, node_id in (("m-0", "a"), ("m-1", "b"), ("m-2", "a")):
        store.put_assignment(Assignment(replica_id, node_id, "m"))
    assert await desired.drain_node("a", 7) == ["m-0", "m-2"]
    assert [each.draining for each in store.assigned.values()] == [True, False, True]
    assert store.cordoned == {"a"}
    await desired.uncordon("a")
    assert store.cordoned == set()


async def test_drain_of_what_nobody_knows(desired: DesiredState) -> None:
    with pytest.raises(NotFound):
        await desired.drain_replica("m-0", None)
    with pytest.raises(NotFound):
        await desired.drain_node("a", None)
    with pytest.raises(NotFound):
        await desired.uncordon("a")
    with pytest.raises(FieldError):
        await desired.drain_node("a", 86401)
