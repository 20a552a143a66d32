"""Held-out loss: -log Q of rows that are not trained on, at a grid of temperatures.

The loss needs no labels: it scores the predicted set of each row, as FedUL does. Logits are divided by each temperature
of the grid. A network becomes over-confident long before it stops learning to tell classes apart, so rounds are
compared at their best temperature; and since -log Q is a proper loss, that temperature also calibrates the classifier
(Guo et al., On Calibration of Modern Neural Networks, ICML 2017).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from fedul.core import PREDICT_BATCH, Scaling, gather_rows, set_loss
from fedul.methods.task import Predict, Task

TEMPERATURES = tuple(2 ** (j / 4) for j in range(-4, 17))
"""The grid, 0.5 to 16. It is the same for all clients, so that their sums can be added."""
UNSCALED = TEMPERATURES.index(1.0)
"""Position of temperature 1 in the grid."""


@dataclass(frozen=True)
class HeldOutSums:
    """Sums over held-out rows at each of `TEMPERATURES`. The sums of several clients can be added.

    Parameters
    ----------
    losses : tuple of float
        Sums of the loss -log Q.
    squared_losses : tuple of float
        Sums of its square.
    squared_differences : tuple of float
        Sums of the squared difference between the loss and the loss at temperature 1.
    rows : int
        Number of rows.
    """

    losses: tuple[float, ...] = (0.0,) * len(TEMPERATURES)
    squared_losses: tuple[float, ...] = (0.0,) * len(TEMPERATURES)
    squared_differences: tuple[float, ...] = (0.0,) * len(TEMPERATURES)
    rows: int = 0

    def __add__(self, other: HeldOutSums) -> HeldOutSums:
        return HeldOutSums.from_tensor(self.to_tensor() + other.to_tensor(), self.rows + other.rows)

    def to_tensor(self) -> Tensor:
        """Return the sums without the rows, (3, T) float64; unlike JSON it holds infinite values."""
        return torch.tensor([self.losses, self.squared_losses, self.squared_differences], dtype=torch.float64)

    @classmethod
    def from_tensor(cls, sums: Tensor, rows: int) -> HeldOutSums:
        """Return the sums from the tensor that `to_tensor` returned."""
        losses, squared_losses, squared_differences = map(tuple, sums.tolist())
        return cls(losses, squared_losses, squared_differences, rows)

    @property
    def loss(self) -> float | None:
        """Mean loss at the best temperature; None without rows."""
        return min(self.losses) / self.rows if self.rows else None

    @property
    def standard_error(self) -> float:
        """Standard error of `loss`."""
        best = self.losses.index(min(self.losses))
        return _standard_error(self.losses[best], self.squared_losses[best], self.rows)

    @property
    def temperature(self) -> float:
        """Temperature nearest to 1 whose loss is within one standard error of the best.

        The loss is nearly flat around its minimum, and the minimum on few rows may be far from the true one. The
        standard error is that of the difference between the losses at the best temperature and at temperature 1.
        """
        if not self.rows:
            return 1.0
        best = self.losses.index(min(self.losses))
        gain = self.losses[best] - self.losses[UNSCALED]
        margin = _standard_error(gain, self.squared_differences[best], self.rows) * self.rows
        good = [t for t, loss in zip(TEMPERATURES, self.losses, strict=True) if loss <= self.losses[best] + margin]
        return min(good, key=lambda t: abs(math.log(t)), default=1.0)  # none is good if losses are NaN


def sum_held_out(parts: Iterable[HeldOutSums]) -> HeldOutSums:
    """Return the sums over the rows of several evaluators."""
    return sum(parts, HeldOutSums())


def _standard_error(total: float, squares: float, rows: int) -> float:
    """Return the standard error of a mean, from the sums of the values and of their squares; 0 for a single row."""
    if rows < 2:
        return 0.0
    return math.sqrt(max(squares / rows - (total / rows) ** 2, 0.0) / (rows - 1))


class HeldOutEvaluator:
    """Evaluates the held-out rows of all clients as one table, which is faster than client by client.

    Parameters
    ----------
    tasks : iterable of Task
        What `fedul.methods.fedul.set_task` returns for the held-out rows of each client.
    """

    def __init__(self, tasks: Iterable[Task]) -> None:
        clients = list(tasks)
        targets = [task.targets for task in clients]
        joints = [each.sets["joint"] for each in targets]  # (M, K) each
        first_sets = accumulate(map(len, joints), initial=0)
        self._rows = [(task.inputs, task.index) for task in clients]
        self._scaling = clients[0].scaling if clients else Scaling()
        self._set = _concatenate([each.rows["set"] + first for each, first in zip(targets, first_sets, strict=False)])
        self._joint = _concatenate(joints)
        self._marginal = _concatenate([each.client["marginal"].expand_as(each.sets["joint"]) for each in targets])

    def evaluate(self, predict: Predict, batch_size: int = PREDICT_BATCH) -> HeldOutSums:
        """Return the sums over all rows.

        Parameters
        ----------
        predict : callable
            The network, in evaluation mode.
        batch_size : int
            Rows that are predicted at a time.
        """
        totals = torch.zeros(3, len(TEMPERATURES), dtype=torch.float64)
        first = 0
        for rows in gather_rows(self._rows, batch_size):
            inputs = self._scaling(rows)
            sets = self._set[first : (first := first + len(inputs))]
            logits = predict(inputs)
            scaled = logits / logits.new_tensor(TEMPERATURES)[:, None, None]  # (T, n, K)
            losses = set_loss(scaled, self._joint[sets], self._marginal[sets]).double()  # (T, n)
            differences = losses - losses[UNSCALED]
            totals += torch.stack([losses.sum(-1), losses.square().sum(-1), differences.square().sum(-1)]).cpu()
        return HeldOutSums.from_tensor(totals, first)


def _concatenate(parts: list[Tensor]) -> Tensor:
    return torch.cat(parts) if parts else torch.empty(0)
