"""Whether a mesh counts as ready: its processes answer, and every deployment is as desired."""

from __future__ import annotations

import pytest

from cli.mesh_report import DeploymentReport, Placement

AS_DESIRED = DeploymentReport("m", desired=2, ready=2, problem="")


@pytest.mark.parametrize(
    ("placement", "is_as_desired"),
    [
        (Placement(True, (AS_DESIRED,)), True),
        (Placement(True, (DeploymentReport("m", desired=0, ready=0, problem=""),)), True),
        (Placement(True, (AS_DESIRED, DeploymentReport("n", desired=1, ready=0, problem=""))), False),
        (Placement(True, (DeploymentReport("m", desired=2, ready=2, problem="a replica keeps dying"),)), False),
        (Placement(answered=False), False),
    ],
)
def test_placement_is_as_desired_only_without_any_gap(placement: Placement, is_as_desired: bool) -> None:
    assert placement.is_as_desired is is_as_desired
