"""The descriptor set is complete and carries the REST paths."""

from __future__ import annotations

from google.api import annotations_pb2
from google.protobuf import descriptor_pool

from deploy.envoy.descriptor import descriptor_set
from inferway.edge.v1 import openai_pb2


def test_descriptor_set_imports_come_before_their_users() -> None:
    names: list[str] = []
    for file in descriptor_set(openai_pb2.DESCRIPTOR).file:
        assert set(file.dependency) <= set(names)
        names.append(file.name)
    assert names[-1] == "inferway/edge/v1/openai.proto"


def test_descriptor_set_alone_describes_the_rest_face() -> None:
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_set(openai_pb2.DESCRIPTOR).file:
        pool.Add(file)
    service = pool.FindServiceByName("inferway.edge.v1.OpenAI")
    rules = {method.name: method.GetOptions().SerializeToString() for method in service.methods}
    expected = openai_pb2.DESCRIPTOR.services_by_name["OpenAI"].methods_by_name["CreateChatCompletion"].GetOptions()
    assert expected.Extensions[annotations_pb2.http].post == "/v1/chat/completions"
    assert rules["CreateChatCompletion"] == expected.SerializeToString()
