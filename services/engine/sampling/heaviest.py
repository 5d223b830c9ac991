"""The largest entries of a row without sorting the vocabulary."""

import numpy as np
from numpy.typing import NDArray

Row = NDArray[np.float32]
"""Logits of one position, by token id."""
Ids = NDArray[np.int64]

_GROUPS = 64


def heaviest(row: Row, count: int) -> Ids:
    """Ids of the `count` largest entries, largest first, equals by id.

    Candidates first: the row is cut into groups; the count-th largest of the groups' maxima bounds the count-th largest entry from below,
    so only the few entries above it are sorted.
    """
    width = len(row) // _GROUPS
    if 2 * count <= width:
        maxima = row[: width * _GROUPS].reshape(_GROUPS, width).max(axis=0)
        ids = np.flatnonzero(row >= np.partition(maxima, width - count)[width - count])
    elif count < len(row):
        ids = np.flatnonzero(row >= np.partition(row, len(row) - count)[len(row) - count])
    else:
        ids = np.arange(len(row))
    return ids[np.argsort(-row[ids], kind="stable")[:count]]
