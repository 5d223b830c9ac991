"""Several routers share the same replicas without knowing of each other: each learns the other's work from the engines."""

from __future__ import annotations

from tests.contract.router.conftest import Mesh


async def test_routers_see_each_others_work_through_the_engine(mesh: Mesh) -> None:
    engine = await mesh.engine("a", max_num_sequences=2)
    await mesh.start_router()
    first = await mesh.gateway("gateway-1")
    await mesh.start_router()
    second = await mesh.gateway("gateway-2")
    for _ in range(2):
        await first.want()
        await first.grant()
    engine.report(num_running=2, num_used_blocks=4)
    await mesh.router.until(lambda view: view.replicas()[0].num_in_flight == 2)
    waiting = await second.want()
    explained = await second.explain()
    assert [verdict.excluded_by for verdict in explained.verdicts] == ["sequences"]
    engine.report(num_running=1, num_used_blocks=2)
    grant = await second.grant()
    assert (grant.want_id, grant.replica_id) == (waiting, "a")
    engine.report(num_running=2, num_used_blocks=4)
    await mesh.routers[0].until(lambda view: view.replicas()[0].num_in_flight == 2)
    assert [replica.num_granted for replica in await first.replicas()] == [2]
    assert [replica.num_granted for replica in await second.replicas()] == [1]


async def test_router_that_stops_leaves_the_other_untouched(mesh: Mesh) -> None:
    await mesh.engine("a")
    staying = await mesh.start_router()
    kept = await mesh.gateway("gateway-1")
    leaving = await mesh.start_router()
    await mesh.gateway("gateway-2")
    await leaving.stop()
    await kept.want()
    assert (await kept.grant()).replica_id == "a"
    await staying.until(lambda view: view.replicas()[0].connected)
