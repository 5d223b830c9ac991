"""Values on their way to the registry and back."""

from inferway.common.v1 import registry_pb2 as pb
from services.scheduler.clients import fleet_values as values
from services.scheduler.fleet import Assignment, Deployment, Phase, Process, ReplicaState


def test_values_deployment_and_assignment_survive_the_way() -> None:
    deployment = Deployment("m", "a" * 12, 3, {"threads": "2"}, 40, 7)
    assert values.deployment_from_proto(values.deployment_to_proto(deployment)) == deployment
    assignment = Assignment("m-0", "a", "m", "a" * 12, True, 1_700_000_000_123, (0, 3), {"threads": "2"}, 40)
    stored = values.decode(values.encode(values.assignment_to_proto(assignment)), pb.Assignment())
    assert stored is not None and values.assignment_from_proto(stored, 9) == assignment


def test_values_every_phase_and_state_has_a_number() -> None:
    for phase in set(Phase) - {Phase.UNKNOWN}:
        process = Process("m-0", phase, 2, "ended with status 3")
        assert values.process_from_proto(values.process_to_proto(process)) == process
    numbers = {values.state_to_proto(state) for state in ReplicaState}
    assert numbers == set(pb.ReplicaState.values())


def test_values_only_cuda_devices_are_given_out_one_by_one() -> None:
    node = pb.Node(node_id="a", devices=[pb.Device(kind="cuda", index=1), pb.Device(kind="cpu", index=0)])
    assert values.node_from_proto(node).device_indexes == (1,)


def test_values_later_fields_are_ignored_and_garbage_is_none() -> None:
    assert values.decode(b'{"model": "m", "inventedLater": 1}', pb.Deployment()) == pb.Deployment(model="m")
    assert values.decode(b"\xff", pb.Deployment()) is None
    assert values.decode(b"{", pb.Deployment()) is None


def test_values_phase_of_a_newer_agent_is_unknown() -> None:
    assert values.process_from_proto(pb.ReplicaProcess(replica_id="m-0", phase=77)).phase is Phase.UNKNOWN  # type: ignore[arg-type]
