"""The `inferway` command: starts, shows and operates a mesh."""

import typer

from cli import chat, deploy, down, drain, keys, logs, model, scale, smoke, status, up, usage
from cli.errors import reported

app = typer.Typer(
    name="inferway",
    help="Run and operate an Inferway mesh on this machine.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command("up")(up.up)
app.command("down")(down.down)
app.command("status")(status.status)
app.command("logs")(logs.logs)
app.command("deploy")(deploy.deploy)
app.command("scale")(scale.scale)
app.command("drain")(drain.drain)
app.command("uncordon")(drain.uncordon)
app.add_typer(model.app, name="model")
app.add_typer(keys.app, name="keys")
app.command("usage")(usage.usage)
app.command("chat")(chat.chat)
app.command("smoke")(smoke.smoke)


def main() -> None:
    """Entry point of the console script."""
    with reported():
        app()
