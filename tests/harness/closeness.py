"""How close a numeric path comes to float32 on a fixed text, in figures that can be quoted."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import LlamaForCausalLM

from services.engine.cpu_runner.runner import CpuRunner
from services.engine.runner import SamplingParams, SequenceSlice
from services.kit.model_store import TOKENIZER, ModelVersion
from tests.harness.smollm import smollm

_TEXT = Path(__file__).parents[1] / "data" / "engine" / "plain_text.txt"
_ROWS = 64


@dataclass(frozen=True, slots=True)
class Closeness:
    """Figures over all positions of the text but the last."""

    num_tokens: int
    reference_perplexity: float
    perplexity: float
    same_top_1: float
    """Share of positions at which both think the same token the likeliest."""
    mean_logprob_distance: float
    """Of the token that really follows, in nats."""
    mean_divergence: float
    """Kullback-Leibler divergence from the reference's distribution, in nats."""

    def __str__(self) -> str:
        return (
            f"{self.num_tokens} tokens: perplexity {self.perplexity:.3f} (reference {self.reference_perplexity:.3f}, "
            f"{100 * (self.perplexity / self.reference_perplexity - 1):+.2f} %), same likeliest token at {100 * self.same_top_1:.1f} %, "
            f"mean log-probability distance {self.mean_logprob_distance:.4f}, mean divergence {self.mean_divergence:.5f}"
        )


@cache
def text_ids() -> tuple[int, ...]:
    """The text in tokens of the small real model."""
    return tuple(Tokenizer.from_str(smollm().read(TOKENIZER).decode()).encode(_TEXT.read_text(), add_special_tokens=False).ids)


def reference_logits(version: ModelVersion, ids: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
    """Logits of transformers at every position, [tokens, vocab]."""
    model = LlamaForCausalLM.from_pretrained(version.path, dtype=dtype).eval()
    with torch.inference_mode():
        logits: Tensor = model(torch.tensor([ids])).logits[0].float()
    return logits


def cpu_logits(runner: CpuRunner, ids: tuple[int, ...]) -> Tensor:
    """Logits of the CPU kernels at every position: slices of one token each, many of one sequence per step."""
    table = list(range(-(-len(ids) // runner.info.block_size)))
    rows = [SequenceSlice(at, [token], at, table, SamplingParams(temperature=0), samples=True) for at, token in enumerate(ids)]
    return torch.cat([torch.tensor(runner.forward(rows[at : at + _ROWS])[0]) for at in range(0, len(rows), _ROWS)])


def closeness(reference: Tensor, found: Tensor, ids: tuple[int, ...]) -> Closeness:
    """Compare logits [tokens, vocab] for the text `ids`."""
    wanted, given = (logits[:-1].double().log_softmax(dim=-1) for logits in (reference, found))
    following = torch.tensor(ids[1:])[:, None]
    wanted_next, given_next = wanted.gather(1, following), given.gather(1, following)
    return Closeness(
        num_tokens=len(ids),
        reference_perplexity=float((-wanted_next.mean()).exp()),
        perplexity=float((-given_next.mean()).exp()),
        same_top_1=float((wanted.argmax(dim=1) == given.argmax(dim=1)).double().mean()),
        mean_logprob_distance=float((wanted_next - given_next).abs().mean()),
        mean_divergence=float((wanted.exp() * (wanted - given)).sum(dim=1).mean()),
    )
