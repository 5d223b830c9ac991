"""`inferway chat`: talk to a model in the terminal, through the edge, as any OpenAI client would."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from cli.console import console, errors_console
from cli.errors import CommandError
from cli.openai_client import connect, explained
from cli.settings import current, demo_key

if TYPE_CHECKING:
    from openai import Stream
    from openai.types.chat import ChatCompletionChunk, ChatCompletionMessageParam

_DEFAULT_MODEL = "smollm2-135m-instruct"


@dataclass
class Figures:
    """What one answer took. Seconds; tokens as the service counts them."""

    ttft_s: float = 0.0
    total_s: float = 0.0
    num_tokens: int = 0

    def __str__(self) -> str:
        decode_s = self.total_s - self.ttft_s
        rate = f"{(self.num_tokens - 1) / decode_s:.1f} tok/s" if self.num_tokens > 1 and decode_s > 0 else "-"
        return f"{self.num_tokens} tokens · TTFT {self.ttft_s * 1000:.0f} ms · {rate}"


class Conversation:
    """A chat whose answers stream to the terminal."""

    def __init__(self, model: str, system: str, max_tokens: int | None, temperature: float | None) -> None:
        settings = current()
        self._client = connect(settings, demo_key(settings, os.environ))
        self._model = model
        self._max_tokens = max_tokens
        self._temperature = temperature
        self._messages: list[ChatCompletionMessageParam] = [{"role": "system", "content": system}] if system else []

    def ask(self, question: str) -> Iterator[str | Figures]:
        """Pieces of the answer as they come, then the figures. An interrupted answer is not remembered."""
        asked: list[ChatCompletionMessageParam] = [*self._messages, {"role": "user", "content": question}]
        figures, begun, pieces = Figures(), time.monotonic(), list[str]()
        with explained(), self._open(asked) as stream:  # closed on every way out, so that a stopped answer is cancelled and billed as such
            for chunk in stream:
                if chunk.usage:
                    figures.num_tokens = chunk.usage.completion_tokens
                text = chunk.choices[0].delta.content if chunk.choices else None
                if text:
                    figures.ttft_s = figures.ttft_s or time.monotonic() - begun
                    pieces.append(text)
                    yield text
        figures.total_s = time.monotonic() - begun
        self._messages = [*asked, {"role": "assistant", "content": "".join(pieces)}]
        yield figures

    def _open(self, messages: "list[ChatCompletionMessageParam]") -> "Stream[ChatCompletionChunk]":
        from openai import omit

        return self._client.chat.completions.create(
            model=self._model,
            messages=messages,
            stream=True,
            stream_options={"include_usage": True},
            max_completion_tokens=omit if self._max_tokens is None else self._max_tokens,
            temperature=omit if self._temperature is None else self._temperature,
        )


def chat(
    question: Annotated[str | None, typer.Argument(help="Ask this and leave; a conversation when not given.")] = None,
    model: Annotated[str, typer.Option(help="Model to talk to.")] = _DEFAULT_MODEL,
    system: Annotated[str, typer.Option(help="System message.")] = "",
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Most tokens of one answer.")] = None,
    temperature: Annotated[
        float, typer.Option(min=0, max=2, help="0 is greedy; the API's own default of 1 is wild for a small model.")
    ] = 0.2,
) -> None:
    """Talk to a model. Answers stream; Ctrl-C stops an answer, Ctrl-D ends the conversation."""
    conversation = Conversation(model, system, max_tokens, temperature)
    if question is not None:
        _answer(conversation, question)
        return
    errors_console().print(f"Talking to {model}. Ctrl-D ends.", style="dim", highlight=False)
    while True:
        try:
            asked = console().input("[bold cyan]> [/]").strip()
        except EOFError:
            return
        if asked:
            try:
                _answer(conversation, asked)
            except KeyboardInterrupt:
                console().print("[dim](stopped)[/]")
            except CommandError as error:
                errors_console().print(f"{error.problem} {error.remedy}", style="red", markup=False)


def _answer(conversation: Conversation, question: str) -> None:
    out = console()
    for piece in conversation.ask(question):
        if isinstance(piece, Figures):
            out.print()
            errors_console().print(str(piece), style="dim", highlight=False)
        else:
            out.print(piece, end="", markup=False, highlight=False, soft_wrap=True)
