"""The peers' locks hold what is asked for, and a hash for all of it."""

import re

import pytest

from bench.peer_locks import PeerLock
from bench.peers import LLAMA_CPP, PLOTS, VLLM

LINE = re.compile(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+( ; [^\\]+)?(\s\\\n\s+--hash=sha256:[0-9a-f]{64})+\n")


@pytest.mark.parametrize("lock", [VLLM, LLAMA_CPP, PLOTS], ids=lambda lock: str(lock.name))
def test_lock_holds_what_is_asked_for_by_version_and_hash_and_nothing_else(lock: PeerLock) -> None:
    for path in lock.paths:
        assert LINE.sub("", path.read_text(encoding="utf-8")) == ""
    locked = {line.split(" ")[0] for line in lock.path.read_text(encoding="utf-8").splitlines()}
    assert set(lock.packages) <= locked
    asked = {re.split("[=>]", package)[0] for package in lock.build_packages}
    built_with = {line.split("==")[0] for line in lock.build_path.read_text(encoding="utf-8").splitlines()} if asked else set()
    assert asked <= built_with


def test_lock_keeps_the_overrides() -> None:
    names = re.findall(r"^([a-z0-9-]+==[^ ]+)", VLLM.path.read_text(encoding="utf-8"), re.MULTILINE)
    assert "torch==2.13.0" in names
    assert not [name for name in names if name.startswith(("torchvision", "torchaudio", "torchcodec"))]


def test_digest_changes_with_the_lock() -> None:
    assert len({lock.digest for lock in (VLLM, LLAMA_CPP, PLOTS)}) == 3
    assert PeerLock(LLAMA_CPP.name, LLAMA_CPP.packages).digest != LLAMA_CPP.digest
