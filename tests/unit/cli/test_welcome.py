"""What `inferway up` prints works when it is pasted."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from cli.welcome import curl, grpcurl, welcome
from deploy.local.local_keys import LocalKeys
from deploy.local.settings import Settings
from deploy.local.up import MODEL, Ready


@pytest.fixture
def ready(tmp_path: Path) -> Ready:
    settings = Settings.from_environ({"INFERWAY_HOME": str(tmp_path), "INFERWAY_PORT_BASE": "20000"})
    return Ready(settings, LocalKeys(demo="sk-demo", operator="sk-operator"), "Apache Kafka keeps events on disk.")


def test_curl_line_streams_from_the_edge_with_the_demo_key(ready: Ready) -> None:
    words = shlex.split(curl(ready))

    assert words[:3] == ["curl", "-N", "http://127.0.0.1:20000/v1/chat/completions"]
    assert "Authorization: Bearer sk-demo" in words
    body = json.loads(words[-1])
    assert body["stream"] is True and body["model"] == MODEL


def test_grpcurl_line_names_the_method_and_the_descriptor_file(ready: Ready) -> None:
    words = shlex.split(grpcurl(ready))

    assert words[-2:] == ["127.0.0.1:20000", "inferway.edge.v1.Inference/Generate"]
    assert words[words.index("-protoset") + 1] == str(ready.settings.home.descriptors)
    assert json.loads(words[words.index("-d") + 1])["start"]["model"] == MODEL


def test_welcome_tells_base_url_key_and_broker_but_not_the_operators_key(ready: Ready) -> None:
    text = welcome(ready)

    assert "http://127.0.0.1:20000/v1" in text and "sk-demo" in text and "Apache Kafka" in text
    assert "sk-operator" not in text
