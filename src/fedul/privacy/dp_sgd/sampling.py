"""Random batches: each row is in a batch with the same probability, independently of all others (Poisson sampling).

A client may have a row in several sets, as the benchmark data of the paper do. Its loss then has a term for each of
these sets. What is protected is the row, so a batch has at most one of its terms, drawn at random, with the number of
its sets as the weight. The expected sum of gradients is that of all terms, and the row is clipped once.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedul.privacy.dp_sgd.stream import RandomStream


class BatchSampler:
    """Draws batches of a client.

    Parameters
    ----------
    index : Tensor
        (n,) number of the row of each term of the loss.
    rate : float
        Probability that a row is in a batch; with 1 it has all rows.
    stream : RandomStream
        Source of randomness.

    Examples
    --------
    >>> sampler = BatchSampler(torch.tensor([3, 5, 3, 7]), 1.0, RandomStream.from_seed(0))
    >>> positions, weights = sampler.draw()
    >>> len(positions), weights.tolist()  # row 3 has two terms
    (3, [2.0, 1.0, 1.0])
    """

    def __init__(self, index: Tensor, rate: float, stream: RandomStream) -> None:
        _, row, self._counts = torch.unique(index.cpu(), return_inverse=True, return_counts=True)
        self._order = row.argsort(stable=True)  # positions of the terms, row by row
        self._starts = self._counts.cumsum(0) - self._counts
        self._rate, self._stream = rate, stream

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._counts)

    def draw(self) -> tuple[Tensor, Tensor]:
        """Return the positions (b,) of the terms of one batch, which may be empty, and their weights (b,).

        b is binomial. Rows are in a fixed order.
        """
        rows = (self._stream.uniform(len(self)) < self._rate).nonzero().squeeze(1)
        counts = self._counts[rows]
        chosen = (self._stream.uniform(len(rows)) * counts).long().minimum(counts - 1)
        return self._order[self._starts[rows] + chosen], counts.double()
