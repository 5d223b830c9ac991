"""Checks of a model folder that need no weights in memory."""

from collections.abc import Sequence

from services.engine.llama import read_config
from services.engine.self_check.findings import Findings
from services.engine.token_bytes import TokenBytes
from services.kit.errors import InferwayError
from services.kit.model_store import TOKENIZER, ModelVersion


def check_files(findings: Findings, version: ModelVersion) -> bool:
    """Every listed file is there, whole and unaltered."""
    try:
        version.verify()
    except InferwayError as error:
        return findings.add("files", False, error.message)
    size = sum(file.num_bytes for file in version.files.values())
    return findings.add("files", True, f"{len(version.files)} files, {size / 1e6:.1f} MB, checksums match version {version.version}")


def check_tokenizer(findings: Findings, version: ModelVersion, text_ids: Sequence[int], text: str) -> bool:
    """Tokenizer, weights and manifest speak of one vocabulary, and text survives the way there and back. Raises as `read_config`."""
    vocabulary = TokenBytes.from_json(version.read(TOKENIZER))
    rows = read_config(version).vocab_size
    fits = len(vocabulary) <= rows and max(version.eos_token_ids, default=0) < version.vocab_size
    back = b"".join(vocabulary[token_id] for token_id in text_ids).decode(errors="replace")
    detail = f"{len(vocabulary)} tokens for {rows} embeddings, {len(version.eos_token_ids)} ends of sequence"
    return findings.add(
        "tokenizer", fits and back == text, f"{detail}; {len(text_ids)} tokens of text {'come' if back == text else 'do not come'} back"
    )
