"""The prompts of a benchmark's requests, as token ids, each a different one: random ids, or pieces of text that people wrote.

After random ids a small model soon repeats itself, which flatters whoever guesses its next tokens from those before; text shows how
often such guesses are right when a prompt means something.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random

from tokenizers import Tokenizer

from bench.peers import PEERS
from bench.shape import Shape
from services.kit.model_store import TOKENIZER

_TOKEN_IDS = range(1000, 40000)
"""Ordinary text tokens of the vocabulary: no control tokens at its start, no rare ones at its end."""
_DATA = Path(__file__).resolve().parents[1] / "tests" / "data"
TEXTS = (_DATA / "gsm8k" / "questions.json", _DATA / "mt-bench" / "turns.json")
"""Lists of questions, or of lists of them; tests/data/README.md names their sources and licences."""
_STRIDE = 7919
"""Prime, so that pieces with numbers one after the other begin at different places, far from each other."""


def prompts_of(shape: Shape, first_serial: int, count: int) -> list[list[int]]:
    """So many prompts, numbered from `first_serial`. Those of text need the peers' tokenizer file: FileNotFoundError without."""
    serials = range(first_serial, first_serial + count)
    if not shape.is_text:
        return [random_prompt(shape, serial) for serial in serials]
    ids = text_ids()
    return [piece(ids, shape.prompt, serial) for serial in serials]


def random_prompt(shape: Shape, serial: int) -> list[int]:
    """The prompt number `serial`: the shared part is the same for all of them, the rest differs from every other prompt's."""
    shared = Random(f"shared {shape.shared}").choices(_TOKEN_IDS, k=shape.shared)
    return shared + Random(f"own {serial} {shape}").choices(_TOKEN_IDS, k=shape.prompt - shape.shared)


def piece(ids: Sequence[int], length: int, serial: int) -> list[int]:
    """The piece number `serial`. As many in a row as there are places to begin at begin at different ones; ValueError where none is."""
    num_places = len(ids) - length + 1
    if num_places < 1:
        raise ValueError(f"the text has {len(ids)} tokens, a piece is to have {length}")
    begin = serial * _STRIDE % num_places
    return list(ids[begin : begin + length])


def text_ids() -> list[int]:
    """The whole text: school mathematics and the questions of a chat benchmark, one after the other."""
    if not (file := PEERS.bfloat16_folder / TOKENIZER).exists():
        raise FileNotFoundError(f"{file} is missing; run: make bench-peers")
    questions = [turn for text in TEXTS for entry in json.loads(text.read_text(encoding="utf-8")) for turn in _turns(entry)]
    ids: list[int] = Tokenizer.from_file(str(file)).encode("\n\n".join(questions), add_special_tokens=False).ids
    return ids


def _turns(entry: str | list[str]) -> list[str]:
    return [entry] if isinstance(entry, str) else entry
