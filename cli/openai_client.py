"""The official OpenAI client, pointed at a mesh, with its failures put into sentences."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cli.errors import CommandError, sentence
from deploy.local.settings import Settings

if TYPE_CHECKING:
    from openai import OpenAI

_TIMEOUT_S = 300.0


def connect(settings: Settings, key: str) -> "OpenAI":
    """A client of this mesh's edge; CommandError when there is no key."""
    if not key:
        raise CommandError("There is no API key for this mesh.", "Run `inferway up` first, or set INFERWAY_API_KEY.")
    from openai import OpenAI  # takes a second to import

    return OpenAI(base_url=f"{settings.base_url}/v1", api_key=key, timeout=_TIMEOUT_S, max_retries=0)


@contextmanager
def explained() -> Iterator[None]:
    """Turn the client's exceptions into CommandError."""
    import openai

    try:
        yield
    except openai.APIStatusError as error:
        raise CommandError(f"The mesh answered {error.status_code}: {sentence(message_of(error))}") from error
    except openai.APIConnectionError as error:
        raise CommandError("The edge does not answer.", "Run `inferway status` to see what runs, or `inferway up` to start it.") from error
    except openai.APIError as error:
        raise CommandError(f"The answer broke off: {sentence(error.message)}") from error


def message_of(error: Exception) -> str:
    """The service's own words out of an openai.APIStatusError."""
    body = getattr(error, "body", None)
    return str(body.get("message", error)) if isinstance(body, dict) else str(error)
