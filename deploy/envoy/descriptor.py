"""The descriptor set that tells Envoy how REST maps onto gRPC, taken from the generated modules so that the two cannot differ."""

from __future__ import annotations

from pathlib import Path

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from inferway.edge.v1 import openai_pb2


def descriptor_set(root: FileDescriptor) -> FileDescriptorSet:
    """`root` and everything it imports, imports first."""
    files: dict[str, FileDescriptor] = {}

    def visit(file: FileDescriptor) -> None:
        if file.name in files:
            return
        for dependency in file.dependencies:
            visit(dependency)
        files[file.name] = file

    visit(root)
    result = FileDescriptorSet()
    for file in files.values():
        file.CopyToProto(result.file.add())
    return result


def write_descriptor(path: Path) -> Path:
    """Write the set for the public REST service to `path` and return it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(descriptor_set(openai_pb2.DESCRIPTOR).SerializeToString())
    return path
