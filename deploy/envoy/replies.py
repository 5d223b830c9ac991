"""Envoy's own replies: OpenAI's error object for REST clients, one plain sentence for native gRPC clients."""

from __future__ import annotations

from typing import Any

# A transcoded request carries application/grpc by the time a reply is made, but also the path it came with.
_NATIVE_GRPC = [
    {"header_filter": {"header": {"name": "content-type", "string_match": {"prefix": "application/grpc"}}}},
    {"header_filter": {"header": {"name": "x-envoy-original-path", "present_match": True, "invert_match": True}}},
]


def build_local_replies(table: list[dict[str, Any]]) -> dict[str, Any]:
    """Two mappers for each row of `local_replies.yaml`, gRPC before REST, in the order of the table."""
    mappers: list[dict[str, Any]] = []
    for index, row in enumerate(table):
        status = _status_filter(row, index)
        grpc_text = {"text_format_source": {"inline_string": row["message"]}}
        mappers.append({"filter": {"and_filter": {"filters": [status, *_NATIVE_GRPC]}}, "body_format_override": grpc_text})
        error = {"message": row["message"], "type": row["type"], "param": None, "code": row["code"]}
        mapper: dict[str, Any] = {"filter": status, "body_format_override": {"json_format": {"error": error}}}
        if "retry_after_s" in row:
            header = {"key": "retry-after", "value": str(row["retry_after_s"])}
            mapper["headers_to_add"] = [{"header": header, "append_action": "ADD_IF_ABSENT"}]
        mappers.append(mapper)
    return {"mappers": mappers}


def _status_filter(row: dict[str, Any], index: int) -> dict[str, Any]:
    value = {"default_value": row["status"], "runtime_key": f"edge.local_reply.{index}"}
    return {"status_code_filter": {"comparison": {"op": "GE" if row.get("and_above") else "EQ", "value": value}}}
