"""Ports for replicas."""

import socket

import pytest

from services.engine.node.ports import PortPool
from services.kit.errors import ResourceExhausted
from tests.harness.ports import free_port


@pytest.fixture
def first() -> int:
    return free_port()


def test_ports_each_is_given_once_until_it_comes_back(first: int) -> None:
    pool = PortPool("127.0.0.1", first, first)
    assert pool.take() == first
    with pytest.raises(ResourceExhausted, match=f"no free port in {first}-{first}"):
        pool.take()
    pool.give_back(first)
    assert pool.take() == first


def test_ports_somebody_elses_listener_is_passed_over(first: int) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", first))
        other.listen()
        with pytest.raises(ResourceExhausted):
            PortPool("127.0.0.1", first, first).take()
    assert PortPool("127.0.0.1", first, first).take() == first
