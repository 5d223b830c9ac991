"""Turns the slices of one step into the tensors that the forward pass reads; built once, used by every layer."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from services.engine.runner import SequenceSlice
from services.engine.sampling.prompt import num_logits

TILE = 32
"""Query positions of a prefill that are computed together. Tiles start at multiples of TILE whatever the chunk is, so that the numbers of a
position do not depend on where a prompt was cut."""


@dataclass(frozen=True, slots=True)
class PrefillPart:
    """One sequence's chunk: rows `first_row` .. of the batch stand at positions `start` .. `end - 1`."""

    first_row: int
    start: int
    end: int
    blocks: Tensor
    """[num_blocks] block ids covering position 0 up to the end of the last tile."""


@dataclass(frozen=True, slots=True)
class DecodeGroup:
    """Sequences of similar length that decode one token each."""

    rows: Tensor
    """[n] rows of the batch."""
    blocks: Tensor
    """[n, num_blocks] block ids; short tables are filled up with the sequence's own first block."""
    lengths: Tensor
    """[n] positions to attend to, the row's own included."""


@dataclass(frozen=True, slots=True)
class StepBatch:
    """All rows of a step, flattened; row r is one token of one sequence."""

    token_ids: Tensor
    """[rows + padding]; padding rows compute token 0 and go nowhere."""
    positions: Tensor
    """[rows + padding]"""
    slots: Tensor
    """[rows] KV slots (block * block_size + offset) the rows write to."""
    fresh_blocks: Tensor
    """[n] blocks that this step begins and does not fill; their old contents must not be seen."""
    num_rows: int
    prefills: list[PrefillPart]
    decodes: list[DecodeGroup]
    logit_rows: Tensor
    """Rows whose logits are wanted: the last `num_logits` of each slice, in the order of the slices."""


def build_batch(slices: Sequence[SequenceSlice], block_size: int, min_rows: int, device: torch.device) -> StepBatch:
    """Lay `slices` out; each must be within its block table. `min_rows` is the fewest rows the products want."""
    tokens: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    fresh: list[int] = []
    wanted: list[int] = []
    prefills: list[PrefillPart] = []
    decoding: dict[int, list[tuple[int, SequenceSlice]]] = {}
    for part in slices:
        first_row, end = len(tokens), part.start + len(part.token_ids)
        tokens += part.token_ids
        positions += range(part.start, end)
        slots += [part.block_table[at // block_size] * block_size + at % block_size for at in range(part.start, end)]
        if end % block_size and part.start <= end - end % block_size:
            fresh.append(part.block_table[end // block_size])
        wanted += range(len(tokens) - num_logits(part), len(tokens))
        if _decodes(part):
            decoding.setdefault(((end - 1) // block_size).bit_length(), []).append((first_row, part))
        else:
            prefills.append(PrefillPart(first_row, part.start, end, _covering(part.block_table, end, block_size, device)))
    num_rows = len(tokens)
    padding = [0] * max(0, min_rows - num_rows)
    return StepBatch(
        token_ids=_integers(tokens + padding, device),
        positions=_integers(positions + padding, device),
        slots=_integers(slots, device),
        fresh_blocks=_integers(fresh, device),
        num_rows=num_rows,
        prefills=prefills,
        decodes=[_group(members, block_size, device) for members in decoding.values()],
        logit_rows=_integers(wanted, device),
    )


def _decodes(part: SequenceSlice) -> bool:
    """A token that was generated, as opposed to a prompt that ends in a chunk of one token."""
    return part.samples and part.output_position > 0 and len(part.token_ids) == 1


def _covering(table: list[int], end: int, block_size: int, device: torch.device) -> Tensor:
    tiles = -(-end // TILE)
    count = -(-tiles * TILE // block_size)
    return _integers(_filled(table, -(-end // block_size), count), device)


def _group(members: list[tuple[int, SequenceSlice]], block_size: int, device: torch.device) -> DecodeGroup:
    lengths = [part.start + 1 for _, part in members]
    count = -(-max(lengths) // block_size)
    tables = [_filled(part.block_table, -(-length // block_size), count) for (_, part), length in zip(members, lengths, strict=True)]
    rows = [row for row, _ in members]
    return DecodeGroup(_integers(rows, device), torch.tensor(tables, dtype=torch.int64, device=device), _integers(lengths, device))


def _filled(table: list[int], used: int, count: int) -> list[int]:
    """The used part of a block table, filled up to `count`; what fills is masked later, so it only has to be finite: own blocks are."""
    return table[:used] + table[:1] * (count - used)


def _integers(values: list[int], device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=torch.int64, device=device)
