"""Commands fail with one sentence, a way out and an exit status, never with a traceback."""

from __future__ import annotations

import pytest

from cli.errors import INTERRUPTED, CommandError, reported, sentence
from deploy.local.errors import LocalError
from services.kit.errors import NotFound, Unauthenticated, Unavailable


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (CommandError("It is not [there].", "Look."), "✗ It is not [there].\n  Look.\n"),
        (LocalError("Port 1 is busy.", "Free it."), "✗ Port 1 is busy.\n  Free it.\n"),
        (NotFound("model x is not deployed"), "✗ Model x is not deployed.\n"),
    ],
)
def test_reported_prints_problem_and_remedy(error: Exception, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left, reported():
        raise error

    assert left.value.code == 1
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    ("error", "hint"), [(Unavailable("no connection"), "inferway status"), (Unauthenticated("unknown key"), "inferway up")]
)
def test_reported_says_what_to_do_about_a_refused_call(error: Exception, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit), reported():
        raise error

    assert hint in capsys.readouterr().err


def test_reported_leaves_with_the_status_of_an_interruption() -> None:
    with pytest.raises(SystemExit) as left, reported():
        raise KeyboardInterrupt

    assert left.value.code == INTERRUPTED


def test_reported_hides_no_defect_of_our_own() -> None:
    with pytest.raises(ZeroDivisionError), reported():
        raise ZeroDivisionError


def test_sentence_begins_large_and_ends_with_a_stop() -> None:
    assert sentence("no  replica\nis ready") == "No replica is ready."
    assert sentence("Really?") == "Really?"
    assert sentence("") == "It failed without a reason."
