"""What a replica is told."""

import dataclasses

from services.engine.node.config import NodeConfig
from services.engine.node.order import Order
from services.engine.node.replica_environ import replica_environ

CONFIG = NodeConfig(home="/h", node_id="a", etcd_endpoints=("e1:1", "e2:2"), kafka_bootstrap="k:1", advertised_host="node-a")


def test_environ_identity_wins_over_settings_and_settings_over_what_is_inherited() -> None:
    inherited = {"PATH": "/bin", "INFERWAY_ENGINE_THREADS": "8", "INFERWAY_ENGINE_RUNNER": "sim", "INFERWAY_ENGINE_PORT": "1"}
    order = Order("m-0", "m", "v", engine_settings={"threads": "2", "replica_id": "other"}, drain_timeout_s=7)
    environ = replica_environ(inherited, CONFIG, order, 9300, 9301)
    assert environ == {
        "PATH": "/bin",
        "INFERWAY_ENGINE_RUNNER": "sim",
        "INFERWAY_ENGINE_THREADS": "2",
        "INFERWAY_ENGINE_REPLICA_ID": "m-0",
        "INFERWAY_ENGINE_MODEL": "m",
        "INFERWAY_ENGINE_MODEL_VERSION": "v",
        "INFERWAY_ENGINE_NODE_ID": "a",
        "INFERWAY_ENGINE_HOME": "/h",
        "INFERWAY_ENGINE_HOST": "127.0.0.1",
        "INFERWAY_ENGINE_ADVERTISED_HOST": "node-a",
        "INFERWAY_ENGINE_PORT": "9300",
        "INFERWAY_ENGINE_METRICS_PORT": "9301",
        "INFERWAY_ENGINE_ETCD_ENDPOINTS": "e1:1,e2:2",
        "INFERWAY_ENGINE_KAFKA_BOOTSTRAP": "k:1",
        "INFERWAY_ENGINE_DRAIN_TIMEOUT_S": "86400",
    }


def test_environ_of_the_node_agent_stays_with_it() -> None:
    environ = replica_environ({"INFERWAY_NODE_PORT": "1", "INFERWAY_HOME": "/h"}, CONFIG, Order("m-0", "m"), 1, 2)
    assert "INFERWAY_NODE_PORT" not in environ
    assert environ["INFERWAY_HOME"] == "/h"


def test_environ_traces_go_where_those_of_the_node_agent_go_unless_the_deployment_says_otherwise() -> None:
    config = dataclasses.replace(CONFIG, otlp_endpoint="c:4317")
    assert replica_environ({}, config, Order("m-0", "m"), 1, 2)["INFERWAY_ENGINE_OTLP_ENDPOINT"] == "c:4317"
    order = Order("m-0", "m", engine_settings={"otlp_endpoint": "d:4317"})
    assert replica_environ({}, config, order, 1, 2)["INFERWAY_ENGINE_OTLP_ENDPOINT"] == "d:4317"


def test_environ_devices_become_visible_and_used() -> None:
    without = replica_environ({}, CONFIG, Order("m-0", "m"), 1, 2)
    assert without.keys().isdisjoint({"CUDA_VISIBLE_DEVICES", "INFERWAY_ENGINE_DEVICE"})
    environ = replica_environ({}, CONFIG, Order("m-0", "m", device_indexes=(1, 3)), 1, 2)
    assert (environ["CUDA_VISIBLE_DEVICES"], environ["INFERWAY_ENGINE_DEVICE"]) == ("1,3", "cuda")


def test_environ_deployment_may_leave_the_devices_unused() -> None:
    order = Order("m-0", "m", device_indexes=(1,), engine_settings={"device": "cpu"})
    assert replica_environ({}, CONFIG, order, 1, 2)["INFERWAY_ENGINE_DEVICE"] == "cpu"
