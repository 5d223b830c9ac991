"""`inferway model`: the models in this mesh's store."""

from pathlib import Path
from typing import Annotated

import typer

from cli.console import console, errors_console
from cli.errors import CommandError
from cli.live_progress import LiveProgress
from cli.settings import current
from cli.tables import table
from deploy.local.mesh import REPOSITORY
from services.kit.model_store import ModelStore, ModelVersion

app = typer.Typer(help="Import models into the store and list them.", no_args_is_help=True)


@app.command("import")
def import_(source: Annotated[str, typer.Argument(help="A model card (YAML), or the name of one in models/.")]) -> None:
    """Turn the weights that a model card describes into a checksummed version of the store."""
    from services.engine.model.card import load_card  # numpy, gguf and tokenizers come with these
    from services.engine.model.importer import import_card

    card = load_card(card_file(source))
    home = current().home
    home.create()
    with LiveProgress(errors_console()) as progress, progress.step(f"Importing {card.name}") as step:
        found = import_card(card, home.root, lambda stage, done, total: step.say(f"{stage} {100 * done // total} %"))
    console().print(f"{found.name} {found.version} is in {found.path}", highlight=False, soft_wrap=True)


@app.command("list")
def list_() -> None:
    """Show every version in the store."""
    rows = table(("model", "version", "context", "size", "license"))
    for found in ModelStore(current().home.root).list():
        rows.add_row(found.name, found.version, str(found.max_context_tokens), _size(found), found.license)
    if rows.row_count:
        console().print(rows)
    else:
        console().print("The store is empty. Run `inferway model import smollm2-135m-instruct`.")


def card_file(source: str) -> Path:
    """The card named on the command line: a path, or the name of a card in models/."""
    for candidate in (Path(source), REPOSITORY / "models" / f"{source}.yaml"):
        if candidate.is_file():
            return candidate
    known = ", ".join(sorted(file.stem for file in (REPOSITORY / "models").glob("*.yaml")))
    raise CommandError(f"There is no model card {source}.", f"Give a path to one, or choose from: {known}.")


def _size(found: ModelVersion) -> str:
    return f"{sum(file.num_bytes for file in found.files.values()) / 1024**2:.0f} MiB"
