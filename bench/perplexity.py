"""Perplexity of what each server computes with, on one fixed text, so that speed is never bought silently.

The text's tokens are cut into windows of WINDOW; the second half of each is scored, given the first, as llama.cpp's own tool does.
Ours and vLLM's come over the wire, from the log-probabilities of an echoed prompt: they are those of the path that served.
"""

import http.client
import json
import math
import re
import statistics
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tokenizers import Tokenizer

from bench.connection import Target
from bench.peers import Peers
from services.kit.model_store import TOKENIZER

TEXT = Path(__file__).resolve().parents[1] / "tests" / "data" / "engine" / "plain_text.txt"
WINDOW = 256
_TIMEOUT_S = 120
_ESTIMATE = re.compile(r"Final estimate: PPL = ([0-9.]+)")


class PerplexityError(Exception):
    """A server gave no log-probabilities, or not as many as it has to."""


def windows(peers: Peers) -> list[list[int]]:
    """The text in token ids, whole windows only."""
    tokenizer = Tokenizer.from_file(str(peers.bfloat16_folder / TOKENIZER))
    ids = tokenizer.encode(TEXT.read_text(encoding="utf-8"), add_special_tokens=False).ids
    return [ids[at : at + WINDOW] for at in range(0, len(ids) - WINDOW + 1, WINDOW)]


def over_the_wire(target: Target, texts: Sequence[Sequence[int]]) -> float:
    """Of a server that echoes prompts with their log-probabilities; PerplexityError when it does not."""
    logprobs = [value for text in texts for value in scored(_echo(target, text), len(text))]
    return math.exp(-statistics.mean(logprobs))


def scored(completion: dict[str, Any], num_tokens: int) -> list[float]:
    """Log-probabilities of the second half of an echoed window: those of all tokens behind the one in the middle."""
    try:
        values = completion["choices"][0]["logprobs"]["token_logprobs"][:num_tokens]
    except (KeyError, IndexError, TypeError) as error:
        raise PerplexityError(f"no log-probabilities of the prompt: {str(completion)[:200]}") from error
    second = values[num_tokens // 2 + 1 :]
    if len(values) < num_tokens or not all(isinstance(value, float) for value in second):
        raise PerplexityError(f"{len(values)} log-probabilities for {num_tokens} tokens")
    return [float(value) for value in second]


def _echo(target: Target, ids: Sequence[int]) -> dict[str, Any]:
    context = target.context()
    connection = (
        http.client.HTTPSConnection(target.host, target.port, timeout=_TIMEOUT_S, context=context)
        if context
        else http.client.HTTPConnection(target.host, target.port, timeout=_TIMEOUT_S)
    )
    body = {"model": target.model, "prompt": list(ids), "max_tokens": 1, "temperature": 0, "echo": True, "logprobs": 1}
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {target.api_key}"} if target.api_key else {})
    path = urlsplit(target.base_url).path.rstrip("/") + "/v1/completions"
    try:
        connection.request("POST", path, json.dumps(body), headers)
        answer: dict[str, Any] = json.loads(connection.getresponse().read())
    except (OSError, ValueError) as error:
        raise PerplexityError(f"no answer: {error!r}") from error
    finally:
        connection.close()
    return answer


def of_llama_cpp(peers: Peers, threads: int) -> float:
    """As llama.cpp's tool measures its own numbers; PerplexityError when it fails."""
    command = [str(peers.llama_perplexity), "-m", str(peers.gguf_q4_0), "-f", str(TEXT), "-c", str(WINDOW), "-t", str(threads)]
    done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, stdin=subprocess.DEVNULL)
    found = _ESTIMATE.search((done.stdout + done.stderr).decode(errors="replace"))
    if found is None:
        raise PerplexityError(f"llama-perplexity ended with {done.returncode} and no estimate")
    return float(found[1])
