"""Held-out loss: -log Q of rows that are not trained on, at a grid of temperatures.

The loss needs no labels: it scores the predicted set of each row, as FedUL does. Logits are divided by each temperature
of the grid. A network becomes over-confident long before it stops learning to tell classes apart, so rounds are
compared at their best temperature; and since -log Q is a proper loss, that temperature also calibrates the classifier
(Guo et al., On Calibration of Modern Neural Networks, ICML 2017).

Two rounds are compared by the differences of their losses on the same rows. The loss varies much more between rows than
between rounds, so the difference has a far smaller standard error than the loss itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from fedul.core import PREDICT_BATCH, Scaling, gather_rows, set_loss
from fedul.methods.task import Predict, Task

TEMPERATURES = tuple(2 ** (j / 4) for j in range(-8, 17))
"""The grid, 0.25 to 16. It is the same for all clients, so that their sums can be added."""
LOG_SCALE = math.log(2)
"""Standard deviation of log temperature a priori: networks are often over-confident by a factor of 2, rarely of 8."""


@dataclass(frozen=True, eq=False)
class Reference:
    """The round that later ones are compared with: the one with the lowest held-out loss so far.

    Parameters
    ----------
    round : int
        Its number.
    loss : float
        Its held-out loss.
    temperature : float
        Its best temperature of the grid.
    weights : mapping of str to Tensor
        Its averaged weights, so that any client can evaluate it on the same rows as another round.
    """

    round: int
    loss: float
    temperature: float
    weights: Mapping[str, Tensor]


@dataclass(frozen=True)
class HeldOutSums:
    """Sums over held-out rows at each of `TEMPERATURES`. The sums of several clients can be added.

    Parameters
    ----------
    losses : tuple of float
        Sums of the loss -log Q.
    squared_differences : tuple of float
        Sums of the squared difference between the loss and the loss of the reference; zeros without a reference.
    reference_loss : float
        Sum of the loss of the reference, at its temperature; 0 without a reference.
    rows : int
        Number of rows.
    """

    losses: tuple[float, ...] = (0.0,) * len(TEMPERATURES)
    squared_differences: tuple[float, ...] = (0.0,) * len(TEMPERATURES)
    reference_loss: float = 0.0
    rows: int = 0

    def __add__(self, other: HeldOutSums) -> HeldOutSums:
        return HeldOutSums(
            tuple(a + b for a, b in zip(self.losses, other.losses, strict=True)),
            tuple(a + b for a, b in zip(self.squared_differences, other.squared_differences, strict=True)),
            self.reference_loss + other.reference_loss,
            self.rows + other.rows,
        )

    @property
    def numbers(self) -> tuple[float, ...]:
        """All sums, without the rows."""
        return (*self.losses, *self.squared_differences, self.reference_loss)

    @property
    def loss(self) -> float | None:
        """Mean loss at the best temperature of the grid; None without rows."""
        return min(self.losses) / self.rows if self.rows else None

    @property
    def grid_temperature(self) -> float:
        """The best temperature of the grid; 1 without rows."""
        return TEMPERATURES[self._best] if self.rows else 1.0

    @property
    def temperature(self) -> float:
        """Most probable temperature, between those of the grid, if log temperature is normal a priori; 1 without rows.

        The sum of the loss is a negative log-likelihood, to which the prior adds (log T)^2 / 2 `LOG_SCALE`^2. It
        decides where there are few rows and is negligible where there are many. The result is the minimum of the
        parabola in log temperature through the lowest value of the grid and its two neighbours.
        """
        logs = [math.log(t) for t in TEMPERATURES]
        values = [loss + log**2 / (2 * LOG_SCALE**2) for loss, log in zip(self.losses, logs, strict=True)]
        best = values.index(min(values))
        if not 0 < best < len(values) - 1:
            return TEMPERATURES[best]
        left, lowest, right = values[best - 1 : best + 2]
        # A sum may be infinite at a neighbour.
        shift = (left - right) / (2 * (left - 2 * lowest + right)) if left + right < math.inf else 0.0
        return math.exp(logs[best] + shift * (logs[1] - logs[0]))

    @property
    def difference(self) -> float:
        """Mean difference between the loss and that of the reference, each at its best temperature; 0 without rows."""
        return (self.losses[self._best] - self.reference_loss) / self.rows if self.rows else 0.0

    @property
    def standard_error(self) -> float:
        """Standard error of `difference`, from the differences of single rows; 0 for a single row."""
        if self.rows < 2:
            return 0.0
        variance = self.squared_differences[self._best] / self.rows - self.difference**2
        return math.sqrt(max(variance, 0.0) / (self.rows - 1))

    @property
    def _best(self) -> int:
        return self.losses.index(min(self.losses))


def sum_held_out(parts: Iterable[HeldOutSums]) -> HeldOutSums:
    """Return the sums over the rows of several evaluators."""
    return sum(parts, HeldOutSums())


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

    def logits(self, predict: Predict, batch_size: int = PREDICT_BATCH) -> Tensor:
        """Return the logits (n, K) of all rows.

        Parameters
        ----------
        predict : callable
            The network, in evaluation mode.
        batch_size : int
            Rows that are predicted at a time.
        """
        return _concatenate([predict(self._scaling(rows)) for rows in gather_rows(self._rows, batch_size)])

    def sums(
        self, logits: Tensor, reference: Tensor | None = None, temperature: float = 1.0, batch_size: int = PREDICT_BATCH
    ) -> HeldOutSums:
        """Return the sums over all rows.

        Parameters
        ----------
        logits : Tensor
            (n, K) logits of all rows.
        reference : Tensor, optional
            (n, K) logits of the round to compare with.
        temperature : float
            Temperature of the reference.
        batch_size : int
            Rows that are computed at a time.
        """
        totals = torch.zeros(2, len(TEMPERATURES), dtype=torch.float64)
        reference_loss = 0.0
        for first in range(0, len(logits), batch_size):
            part = slice(first, first + batch_size)
            losses = self._losses(logits, part, TEMPERATURES)  # (T, n)
            if reference is None:
                totals[0] += losses.sum(-1).cpu()
                continue
            others = self._losses(reference, part, (temperature,))  # (1, n)
            totals += torch.stack([losses.sum(-1), (losses - others).square().sum(-1)]).cpu()
            reference_loss += float(others.sum())
        return HeldOutSums(tuple(totals[0].tolist()), tuple(totals[1].tolist()), reference_loss, len(logits))

    def _losses(self, logits: Tensor, part: slice, temperatures: tuple[float, ...]) -> Tensor:
        """Return the losses (T, n) of a part of the rows."""
        # Of huge logits, the difference to the largest must not be lost to rounding: the loss would be 0.
        shifted = logits[part] - logits[part].amax(-1, keepdim=True)
        sets, scaled = self._set[part], shifted / logits.new_tensor(temperatures)[:, None, None]
        return set_loss(scaled, self._joint[sets], self._marginal[sets]).double()


def _concatenate(parts: list[Tensor]) -> Tensor:
    return torch.cat(parts) if parts else torch.empty(0)
