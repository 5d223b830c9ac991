"""Two hundred prompts that people wrote: questions of MT-bench and GSM8K as chats, as unfinished texts, several in a row, cut anywhere."""

import json
from functools import cache
from pathlib import Path

from tokenizers import Tokenizer

from services.kit.model_store import TOKENIZER
from tests.harness.smollm import smollm

_DATA = Path(__file__).parents[1] / "data"
_SHORTEST, _LONGEST = 1, 400


@cache
def question_ids() -> tuple[tuple[int, ...], ...]:
    """The prompts in tokens of the small real model, from one token to 400."""
    tokenizer = Tokenizer.from_str(smollm().read(TOKENIZER).decode())
    turns: list[list[str]] = json.loads((_DATA / "mt-bench" / "turns.json").read_text())
    problems: list[str] = json.loads((_DATA / "gsm8k" / "questions.json").read_text())
    texts = [*(_chat(first) for first, *_ in turns), *(_text(problems, index) for index in range(len(problems)))]
    encoded = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
    return tuple(tuple(ids[: _length(index)]) for index, ids in enumerate(encoded))


def _chat(text: str) -> str:
    return f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"


def _text(problems: list[str], index: int) -> str:
    """A chat, a plain text that goes on, or (every eighth) several problems in a row."""
    if index % 8 == 7:
        return "\n\n".join(problems[index - 5 : index + 1])
    return problems[index] + "\nAnswer:" if index % 2 else _chat(problems[index])


def _length(index: int) -> int:
    """Every third prompt is cut, at a length of its own."""
    return _SHORTEST + index * 37 % 90 if index % 3 == 0 else _LONGEST
