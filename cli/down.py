"""`inferway down`: stop the mesh and free every port."""

from cli.console import console, errors_console
from cli.live_progress import LiveProgress
from cli.settings import current
from deploy.local import running
from deploy.local.supervise import exclusive


def down() -> None:
    """Stop everything that `inferway up` started in this INFERWAY_HOME. Data stay."""
    home = current().home
    if not home.run.is_dir():
        console().print("Nothing was running.")
        return
    with exclusive(home.command_lock), LiveProgress(errors_console()) as progress, progress.step("Stopping"):
        stopped = running.stop(home)
    console().print("Stopped." if stopped else "Nothing was running.")
