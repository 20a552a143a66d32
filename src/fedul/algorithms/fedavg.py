"""FedAvg: the next model is the mean of the clients' models.

McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, AISTATS 2017. FedUL's server
step is f + step * mean(f_c - f) (printed there with a minus sign); at step = 1 this is the mean.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedul.algorithms.base import Algorithm


@dataclass(frozen=True)
class FedAvg(Algorithm):
    """The mean of the updates, streamed.

    >>> import torch
    >>> from fedul.algorithms.base import Update
    >>> start = {"w": torch.tensor([0.0])}
    >>> moves = {"a": (1.0, 10), "b": (4.0, 20)}  # how far each client moved, on how many rows
    >>> updates = [Update(c, {"w": torch.tensor([move])}, rows, 1, 0.0) for c, (move, rows) in moves.items()]
    >>> FedAvg().aggregate(start, {}, updates, 2)[0], FedAvg(weighting="rows").aggregate(start, {}, updates, 2)[0]
    ({'w': tensor([2.5000])}, {'w': tensor([3.])})
    """
