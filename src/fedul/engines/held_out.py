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

from torch import Tensor

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
