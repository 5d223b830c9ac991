"""The command line as typed: every command is there, and bad input is refused before anything is asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.errors import CommandError
from cli.main import app
from services.kit.errors import Unavailable

COMMANDS = ("up", "down", "status", "logs", "deploy", "scale", "drain", "uncordon", "model", "keys", "usage", "chat", "smoke")


@pytest.fixture
def invoke(tmp_path: Path) -> CliRunner:
    """A command line whose home is empty and whose ports nobody listens on."""
    return CliRunner(env={"INFERWAY_HOME": str(tmp_path / "home"), "INFERWAY_PORT_BASE": "1024", "COLUMNS": "200"})


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_every_command_works(invoke: CliRunner, command: str) -> None:
    result = invoke.invoke(app, [command, "--help"])

    assert result.exit_code == 0
    assert "Usage:" in result.output


@pytest.mark.parametrize(
    "command", [["status"], ["chat", "hi"], ["smoke"], ["keys", "list"], ["logs"], ["model", "import", "no-such-model"]]
)
def test_command_without_a_mesh_says_so(invoke: CliRunner, command: list[str]) -> None:
    result = invoke.invoke(app, command)

    assert isinstance(result.exception, CommandError)
    assert result.exception.remedy


@pytest.mark.parametrize("command", [["deploy", "m"], ["scale", "m", "1"], ["drain", "m-0"], ["uncordon", "n"], ["usage"]])
def test_command_whose_service_does_not_answer_raises_unavailable(invoke: CliRunner, command: list[str]) -> None:
    assert isinstance(invoke.invoke(app, command).exception, Unavailable)


@pytest.mark.parametrize(
    "command",
    [
        ["scale", "m", "-1"],
        ["scale", "m", "4294967296"],
        ["deploy", "m", "-n", "4294967296"],
        ["deploy", "m", "--drain-timeout-s", "4294967296"],
        ["drain", "m-0", "--timeout-s", "4294967296"],
        ["smoke", "-n", "0"],
        ["usage", "--by", "request", "--model", "m"],
        ["up", "--runner", "x"],
        ["drain"],
        ["drain", "m-0", "--node", "n"],
        ["drain", "m-0", "--timeout-s", "-1"],
        ["uncordon"],
    ],
)
def test_command_with_bad_input_is_a_usage_error(invoke: CliRunner, command: list[str]) -> None:
    assert invoke.invoke(app, command).exit_code == 2


def test_deploy_with_a_malformed_setting_names_it(invoke: CliRunner) -> None:
    result = invoke.invoke(app, ["deploy", "m", "--set", "threads"])

    assert isinstance(result.exception, CommandError)
    assert "threads" in result.exception.problem


def test_down_without_a_mesh_is_no_error(invoke: CliRunner) -> None:
    result = invoke.invoke(app, ["down"])

    assert (result.exit_code, result.output.strip()) == (0, "Nothing was running.")


def test_model_list_of_an_empty_store_says_how_to_fill_it(invoke: CliRunner) -> None:
    assert "inferway model import" in invoke.invoke(app, ["model", "list"]).output
