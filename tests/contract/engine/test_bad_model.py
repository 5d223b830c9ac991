"""A replica whose model folder is damaged, or does not fit together, ends at once and says why in a sentence."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from services.kit.model_store import TOKENIZER, WEIGHTS, ModelVersion
from tests.harness.replica_process import replica_environ
from tests.harness.resigned_model import change_json
from tests.harness.tiny_model import write_tiny_model


def cut_weights(version: ModelVersion) -> None:
    (version.path / WEIGHTS).write_bytes(b"no w")


def alter_tokenizer(version: ModelVersion) -> None:
    path = version.path / TOKENIZER
    path.write_bytes(path.read_bytes().replace(b"a", b"b", 1))


def give_it_a_larger_tokenizer(version: ModelVersion) -> None:
    change_json(version, TOKENIZER, lambda document: document["model"]["vocab"].update({"more": version.vocab_size}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (cut_weights, "model.safetensors has 4 bytes"),
        (alter_tokenizer, "tokenizer.json does not match its checksum"),
        (give_it_a_larger_tokenizer, "the tokenizer has 269 tokens, the weights 268"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_process_of_a_bad_model_says_why_it_cannot_start(tmp_path: Path, change: Callable[[ModelVersion], None], message: str) -> None:
    change(write_tiny_model(tmp_path))
    command, environ = [sys.executable, "-m", "services.engine"], replica_environ(tmp_path, runner="sim")
    done = subprocess.run(command, env=environ, stderr=subprocess.PIPE, text=True, timeout=50, check=False)
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr
