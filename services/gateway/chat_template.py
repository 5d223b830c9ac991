"""Renders a model's chat template and turns the text into tokens, so that a conversation cannot forge the template's control tokens.

A control token in the rendered text counts only where the template wrote it. Before rendering, every character of a message that could
begin a control token gets a mark behind it; after rendering, control tokens are looked for in the marked text, the marks are taken out, and
what lies between control tokens is encoded by a tokenizer that knows no control token at all.

A prompt far beyond the context is refused after its beginning was encoded: megabytes of text must not keep a thread busy for seconds.
"""

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from services.gateway.request import Message
from services.kit.errors import ContextLengthExceeded, DataLoss, FieldError

_PRIVATE_USE = range(0xF0000, 0xFFFFE)
_USUAL_CHARS_PER_TOKEN = 8


class ChatTemplate:
    """One model version's template and tokenizer. Threads may share it; it holds no state of a request."""

    def __init__(self, template: str, tokenizer_json: str, *, bos_token_id: int | None, eos_token_ids: frozenset[int]) -> None:
        """Raises DataLoss when the template or the tokenizer cannot be used."""
        self._tokens = _ControlTokens(tokenizer_json, eos_token_ids)
        self._template = _compile(template)
        self._variables = {
            "add_generation_prompt": True,
            "bos_token": self._tokens.text_of(bos_token_id),
            "eos_token": self._tokens.text_of(min(eos_token_ids, default=None)),
        }

    def encode(self, messages: Sequence[Message], max_context_tokens: int) -> list[int]:
        """Token ids of the prompt, generation prompt included. Takes CPU time, and lets other threads run meanwhile.

        FieldError when the template refuses the conversation. A prompt that does not fit comes back whole, so that its length can be told;
        one of more than twice the context is CONTEXT_LENGTH_EXCEEDED.
        """
        mark = _unused_mark(messages)
        marked = [{"role": message.role, "content": self._tokens.mark(message.content, mark)} for message in messages]
        try:
            text = self._template.render(messages=marked, **self._variables)
        except jinja2.TemplateError as error:
            message = (error.message or "no reason given")[:200].replace(mark, "")
            raise FieldError("messages", f"the model's chat template refuses these messages: {message}") from None
        try:
            return self._tokens.encode(text, mark, 2 * max_context_tokens)
        except _TooMany:
            raise _too_long("messages", max_context_tokens) from None

    def encode_text(self, text: str, max_context_tokens: int) -> list[int]:
        """Token ids of a text as it is, behind what the tokenizer puts before every text (such as one BOS). Limits as `encode`."""
        try:
            return self._tokens.encode_plain(text, 2 * max_context_tokens)
        except _TooMany:
            raise _too_long("prompt", max_context_tokens) from None

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of tokens; a control token has none. Takes CPU time."""
        return self._tokens.decode(token_ids)


class _TooMany(Exception):
    """The text has more tokens than anybody wants to know."""


class _ControlTokens:
    """The tokenizer split into control tokens, found as whole strings, and ordinary text."""

    def __init__(self, tokenizer_json: str, eos_token_ids: frozenset[int]) -> None:
        try:
            document = json.loads(tokenizer_json)
            added = document["added_tokens"]
            self._ids: dict[str, int] = {str(t["content"]): int(t["id"]) for t in added if t["special"] or t["id"] in eos_token_ids}
        except (ValueError, KeyError, TypeError) as error:
            raise _unreadable() from error
        self._prefix = _prefix(tokenizer_json)
        document["added_tokens"] = [token for token in added if token["content"] not in self._ids]
        document["post_processor"] = None
        try:
            self._text_tokenizer = Tokenizer.from_str(json.dumps(document))
        except Exception as error:
            # The library raises nothing narrower.
            raise _unreadable() from error
        self._pattern = re.compile("|".join(re.escape(token) for token in sorted(self._ids, key=len, reverse=True)) or r"(?!)")
        self._longest = max(map(len, self._text_tokenizer.get_vocab()), default=1)
        self._first = re.compile("[" + "".join(sorted({re.escape(token[0]) for token in self._ids})) + "]") if self._ids else self._pattern

    def text_of(self, token_id: int | None) -> str:
        """The control token with this id, "" when there is none."""
        return next((text for text, known in self._ids.items() if known == token_id), "")

    def mark(self, content: str, mark: str) -> str:
        return self._first.sub(lambda match: match.group() + mark, content)

    def encode(self, text: str, mark: str, limit: int) -> list[int]:
        """Raises _TooMany when it is certain that there are more than `limit` tokens, and not before."""
        ids: list[int] = []
        position = 0
        for match in self._pattern.finditer(text):
            self._encode_text(text[position : match.start()].replace(mark, ""), ids, limit)
            ids.append(self._ids[match.group()])
            position = match.end()
        self._encode_text(text[position:].replace(mark, ""), ids, limit)
        return ids

    def encode_plain(self, text: str, limit: int) -> list[int]:
        """As `encode`, for text that is not from a template: none of its characters make a control token."""
        ids = list(self._prefix)
        self._encode_text(text, ids, limit)
        return ids

    def decode(self, token_ids: Sequence[int]) -> str:
        control = set(self._ids.values())
        return str(self._text_tokenizer.decode([token_id for token_id in token_ids if token_id not in control]))

    def _encode_text(self, text: str, ids: list[int], limit: int) -> None:
        if len(text) > self._longest * limit:
            raise _TooMany
        beginning = limit * _USUAL_CHARS_PER_TOKEN
        if len(text) > beginning and len(self._ids_of(text[:beginning])) > limit:
            raise _TooMany
        ids.extend(self._ids_of(text))
        if len(ids) > limit:
            raise _TooMany

    def _ids_of(self, text: str) -> list[int]:
        # A batch, because encoding a single text keeps the interpreter's lock, and with it the event loop, until it is done.
        return list(self._text_tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids) if text else []


def _prefix(tokenizer_json: str) -> list[int]:
    """The control tokens that the tokenizer's own rule puts before a text."""
    try:
        encoded = Tokenizer.from_str(tokenizer_json).encode("a")
    except Exception as error:
        # The library raises nothing narrower.
        raise _unreadable() from error
    marked = zip(encoded.ids, encoded.special_tokens_mask, strict=True)
    return [token_id for token_id, _ in itertools.takewhile(lambda entry: bool(entry[1]), marked)]


def _too_long(param: str, max_context_tokens: int) -> ContextLengthExceeded:
    facts = {"max_context_tokens": str(max_context_tokens), "param": param}
    message = f"the model's context holds {max_context_tokens} tokens; the {param} of this request need more than {2 * max_context_tokens}"
    return ContextLengthExceeded(message, metadata=facts)


def _unreadable() -> DataLoss:
    return DataLoss("the model's tokenizer cannot be read; import the model again")


def _unused_mark(messages: Sequence[Message]) -> str:
    """A private-use character that no message holds, so that taking marks out takes nothing else out."""
    present: set[str] = set().union(*(message.content for message in messages if not message.content.isascii()))
    return next(char for char in map(chr, _PRIVATE_USE) if char not in present)


def _compile(template: str) -> jinja2.Template:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    environment.globals["raise_exception"] = _refuse
    environment.filters["tojson"] = _to_json
    try:
        return environment.from_string(template)
    except jinja2.TemplateError as error:
        raise DataLoss("the model's chat template cannot be compiled; import the model again") from error


def _refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _to_json(value: Any, **options: Any) -> str:
    """As model makers expect it: without HTML escapes."""
    known: Mapping[str, Any] = {key: options[key] for key in ("indent", "sort_keys") if key in options}
    return json.dumps(value, ensure_ascii=False, **known)
