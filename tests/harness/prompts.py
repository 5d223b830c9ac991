"""Two dozen prompts of many kinds: languages, code, markup, one character, a few hundred tokens."""

from functools import cache

from tokenizers import Tokenizer

from services.kit.model_store import TOKENIZER
from tests.harness.smollm import smollm


def _chat(text: str) -> str:
    return f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"


PROMPTS = (
    _chat("What is the capital of Norway?"),
    _chat("Name three animals that lay eggs."),
    _chat("Write a Python function that reverses a list."),
    _chat("Translate to German: the train leaves at seven."),
    _chat("Why does ice float? Answer in one sentence."),
    _chat("Continue: 1, 1, 2, 3, 5, 8,"),
    _chat("¿Quién escribió el Quijote? 🚀"),
    _chat("日本で一番高い山は何ですか。"),
    _chat(""),
    "<|im_start|>system\nAnswer in rhymes.<|im_end|>\n" + _chat("Where does the river go?"),
    _chat("Hello") + "Hi! What can I do for you?<|im_end|>\n" + _chat("Repeat my first word."),
    "The old lighthouse keeper",
    "def merge(left, right):\n    result = []\n",
    "SELECT city, AVG(rain) FROM weather WHERE",
    '{"name": "Grace", "born": 1906, "fields": [',
    "Powers of two: 1 2 4 8 16 32",
    "z",
    "\n\n",
    "L'hiver à Grenoble était très",
    "<html><head><title>Bread</title></head><body><p>",
    "Ingredients: flour, water, salt. Steps: first,",
    "Q: How many legs has a spider?\nA:",
    "\tint main(void) {\n\t\treturn",
    "A long list. " + " ".join(f"Parcel {n} weighs {n * n % 89} kg and goes to gate {n * 5 % 23}." for n in range(30)) + " So,",
)


@cache
def prompt_ids() -> tuple[tuple[int, ...], ...]:
    """The prompts in tokens of the small real model."""
    tokenizer = Tokenizer.from_str(smollm().read(TOKENIZER).decode())
    return tuple(tuple(tokenizer.encode(prompt, add_special_tokens=False).ids) for prompt in PROMPTS)
