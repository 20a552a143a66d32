"""FedAvg: the next global model is the mean of the clients' models.

McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, AISTATS 2017. The
server step of FedUL is f + step * mean(f_c - f) (printed there with a minus sign); with step = 1 it is the mean.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedul.algorithms.base import Algorithm


@dataclass(frozen=True)
class FedAvg(Algorithm):
    """The global model moves by the mean of the updates.

    Parameters
    ----------
    weighting : {"uniform", "rows"}, default="uniform"
        Whether all clients count the same or by their rows.
    step : float, default=1.0
        Global step size.

    Examples
    --------
    >>> import torch
    >>> from fedul.core.update import Update
    >>> start = {"w": torch.tensor([0.0])}
    >>> moves = {"a": (1.0, 10), "b": (4.0, 20)}  # change and rows of each client
    >>> updates = [Update(c, {"w": torch.tensor([move])}, rows, 1, 0.0) for c, (move, rows) in moves.items()]
    >>> FedAvg().aggregate(start, {}, updates, 2)[0], FedAvg(weighting="rows").aggregate(start, {}, updates, 2)[0]
    ({'w': tensor([2.5000])}, {'w': tensor([3.])})
    """
