"""Random batches: each row is in a batch with the same probability, independently of all others (Poisson sampling)."""

from __future__ import annotations

from torch import Tensor

from fedul.privacy.dp_sgd.stream import RandomStream


def draw_batch(stream: RandomStream, rows: int, rate: float) -> Tensor:
    """Return the positions of the rows of one batch, in ascending order; there may be none.

    Parameters
    ----------
    stream : RandomStream
        Source of randomness.
    rows : int
        Number of rows of the client.
    rate : float
        Probability that a row is in the batch; with 1 it has all rows.

    Returns
    -------
    Tensor
        (b,) positions; b is binomial.
    """
    return (stream.uniform(rows) < rate).nonzero().squeeze(1)
