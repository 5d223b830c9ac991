"""The port plan: distinct, inside its block, and disjoint from the next mesh's."""

from __future__ import annotations

from dataclasses import astuple

import pytest

from deploy.local.ports import DEFAULT_BASE, SPAN, PortPlan


def test_ports_of_default_base_are_the_documented_ones() -> None:
    plan = PortPlan.from_base(DEFAULT_BASE)

    assert (plan.edge_http, plan.edge_tls, plan.envoy_admin) == (8400, 8401, 8402)
    assert (plan.gateway_grpc, plan.router_grpc, plan.scheduler_grpc, plan.metering_grpc, plan.node_grpc) == (8410, 8420, 8430, 8440, 8450)
    assert (plan.etcd_client, plan.kafka, plan.replica_first, plan.replica_last) == (8460, 8462, 8500, 8599)


def test_ports_of_two_neighbouring_meshes_never_meet() -> None:
    first, second = astuple(PortPlan.from_base(20000)), astuple(PortPlan.from_base(20000 + SPAN))

    assert len(set(first)) == len(first)
    assert max(first) < min(second)


def test_listeners_leave_replica_ports_to_the_node_agent() -> None:
    listeners = PortPlan.from_base(20000).listeners()

    assert listeners["edge_http"] == 20000
    assert all(port < 20100 for port in listeners.values())


@pytest.mark.parametrize("base", [0, 1023, 65536 - SPAN + 1])
def test_ports_of_a_base_without_room_are_refused(base: int) -> None:
    with pytest.raises(ValueError, match="outside"):
        PortPlan.from_base(base)
