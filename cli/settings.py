"""The mesh that a command talks to: the environment, overridden by what was typed."""

import os
from collections.abc import Mapping
from dataclasses import replace

from deploy.local import running
from deploy.local.local_keys import operator_key_file, read_key
from deploy.local.settings import Settings


def overridden(environ: Mapping[str, str], **overrides: str | int | None) -> dict[str, str]:
    """The environment with the options that were given on the command line put over it."""
    variables = {
        "port_base": "INFERWAY_PORT_BASE",
        "runner": "INFERWAY_ENGINE_RUNNER",
        "broker": "INFERWAY_LOCAL_BROKER",
        "replicas": "INFERWAY_LOCAL_REPLICAS",
    }
    return {**environ, **{variables[name]: str(value) for name, value in overrides.items() if value is not None}}


def current() -> Settings:
    """Settings of the mesh that runs in this INFERWAY_HOME: where it runs is believed before the environment."""
    settings = Settings.from_environ(os.environ)
    found = running.find(settings.home)
    return replace(settings, port_base=found.port_base) if found else settings


def demo_key(settings: Settings, environ: Mapping[str, str]) -> str:
    """INFERWAY_API_KEY, else the key that `inferway up` printed; empty when there is none."""
    return environ.get("INFERWAY_API_KEY") or read_key(settings.home.demo_key_file)


def operator_key(settings: Settings, environ: Mapping[str, str]) -> str:
    """INFERWAY_OPERATOR_KEY, else the operator's key of this home; empty when there is none."""
    return environ.get("INFERWAY_OPERATOR_KEY") or read_key(operator_key_file(settings.home))
