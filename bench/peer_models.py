"""The model as each peer wants it, made from the same file that our own engine serves.

llama.cpp has fast kernels for Q4_0 but none for the shipped Q4_1, so it gets Q4_0 (2 to 4 times its speed); vLLM has none for GGUF files
on a CPU, so it gets the dequantised weights in bfloat16.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

from services.engine.model.card import load_card
from services.engine.model.importer import import_card
from services.kit.model_store import CHAT_TEMPLATE, CONFIG, TOKENIZER, WEIGHTS

_ROOT = Path(__file__).resolve().parents[1]
CARD = _ROOT / "models" / "smollm2-135m-instruct.yaml"
_QUANTISE_TIMEOUT_S = 300


def make_gguf_q4_0(quantiser: Path, target: Path) -> Path:
    """Requantise the card's file to Q4_0, unless that was done before."""
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        half = target.with_suffix(".half")
        command = [str(quantiser), "--allow-requantize", str(load_card(CARD).source()), str(half), "Q4_0"]
        subprocess.run(command, check=True, timeout=_QUANTISE_TIMEOUT_S, capture_output=True)
        half.rename(target)
    return target


def make_bfloat16_folder(home: Path, target: Path) -> Path:
    """A model folder as the transformers library reads it, unless it was made before; `home` keeps the float32 import."""
    if target.exists():
        return target
    import torch
    from safetensors.torch import load_file, save_file

    source = import_card(load_card(CARD), home).path
    half = target.with_suffix(".half")
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    weights = {name: value.to(torch.bfloat16) for name, value in load_file(source / WEIGHTS).items()}
    save_file(weights, half / WEIGHTS, metadata={"format": "pt"})
    for name in (TOKENIZER, CHAT_TEMPLATE):
        shutil.copyfile(source / name, half / name)
    config = json.loads((source / CONFIG).read_text(encoding="utf-8")) | {"dtype": "bfloat16"}
    (half / CONFIG).write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    tokenizer = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "bos_token": "<|im_start|>"}
    (half / "tokenizer_config.json").write_text(json.dumps(tokenizer) + "\n", encoding="utf-8")
    os.rename(half, target)
    return target
