"""Evaluation of held-out rows: the sums of `fedul.engines.held_out`, at little more than the cost of predicting them.

With more than `GRID_ROWS` rows, the grid is evaluated on a fixed sample S of n of the N rows, the same in every round,
and all rows at one temperature t0 only, the best one on the sample. The sums L_t over all rows are estimated by

    L_t = sum_all l_t0 + (N / n) sum_S (l_t - l_t0),

which is unbiased for a given t0, exact at t0, and lowest at t0. So rounds of one evaluator are compared by exact losses
of all rows. The choice of t0 from a sample raises the loss by about 1 / 2n nats, less than the distance between two
temperatures of the grid does. The sums of several sites are on the scale of all their rows and can be added. If their
temperatures differ, L_t has a sampling variance of N (N - n) / n var_S(l_t - l_t0) at a site whose t0 is not t. It is
added to the squared differences, whose sum is the variance of the total, so that the standard error contains it.
The sample takes one row of each of n equal parts, so that every client is represented in proportion to its rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from fedul._utils.randomness import torch_generator
from fedul.core import PREDICT_BATCH, gather_rows, set_loss
from fedul.engines.held_out import TEMPERATURES, HeldOutSums
from fedul.engines.held_out_rows import HeldOutRows, concatenate, spread
from fedul.methods.task import Predict, Task

GRID_ROWS = 20_000
"""Rows that are evaluated at every temperature. If there are no more held-out rows than that, all of them are."""
BLOCK_VALUES = 2**18
"""Input values of a block of rows, if there are more than `GRID_ROWS`: they fit the cache of one core."""
PARALLEL_ROWS = 500_000
"""Rows from which on all cores evaluate them. With fewer, threads mostly wait, above all on a busy machine."""
SAFE = 1e18
"""Sums of exponentials between 1 / SAFE and SAFE neither overflow nor lose digits in float32."""


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predictions of one model for the held-out rows.

    Parameters
    ----------
    grid : Tensor
        (n, K) logits of all rows; with more than `GRID_ROWS` rows, (T, g) losses of the sample at each temperature.
    temperature : float or None
        Temperature of `losses`; None where `grid` has the logits of all rows.
    losses : Tensor or None
        (N,) losses of all rows.
    """

    grid: Tensor
    temperature: float | None = None
    losses: Tensor | None = None

    def fits(self, temperature: float | None) -> bool:
        """Return whether they can be used where predictions at this temperature are asked for."""
        return self.losses is None or temperature in (None, self.temperature)


class HeldOutEvaluator:
    """Evaluates the held-out rows of all clients as one table, which is faster than client by client.

    Parameters
    ----------
    rows : HeldOutRows or iterable of Task
        The rows, or what `fedul.methods.fedul.set_task` returns for the held-out rows of each client.
    seed : int, default=0
        Seed of the sample that is evaluated at all temperatures.
    """

    def __init__(self, rows: HeldOutRows | Iterable[Task], seed: int = 0) -> None:
        table = rows if isinstance(rows, HeldOutRows) else HeldOutRows.of_tasks(rows)
        self._rows, self._scaling, self._set = table.parts, table.scaling, table.sets
        self._joint, self._marginal = table.joint, table.marginal  # (S, K) each
        self._sample: HeldOutRows | None = None
        if len(self._set) > GRID_ROWS:
            self._places = spread(len(self._set), GRID_ROWS, torch_generator(seed, "held-out grid"))
            self._sample = table.select(self._places)
            self._tables = torch.stack([self._joint.exp(), self._marginal.exp()], 1)  # (S, 2, K)

    @property
    def is_sampled(self) -> bool:
        """Whether the grid of temperatures is evaluated on a sample of the rows."""
        return self._sample is not None

    @property
    def gains_from_threads(self) -> bool:
        """Whether there are enough rows for all cores."""
        return len(self._set) >= PARALLEL_ROWS

    def predictions(self, predict: Predict, temperature: float | None = None) -> Predictions:
        """Return what `compare` needs of a model.

        Parameters
        ----------
        predict : callable
            The network, in evaluation mode.
        temperature : float, optional
            Temperature at which all rows are evaluated; by default the best one on the sample.
        """
        if self._sample is None:
            return Predictions(self.logits(predict))
        grid = torch.cat(
            [
                torch.stack([self._losses_at(logits, self._sample.sets[block], t) for t in TEMPERATURES])
                for block, logits in self._blocks(predict, self._sample.parts)
            ],
            dim=1,
        )  # (T, g)
        if temperature is None:
            temperature = TEMPERATURES[int(grid.sum(1, dtype=torch.float64).argmin())]
        losses = grid.new_empty(len(self._set))
        for block, logits in self._blocks(predict, self._rows):
            losses[block] = self._losses_at(logits, self._set[block], temperature)
        return Predictions(grid, temperature, losses)

    def compare(
        self, predictions: Predictions, reference: Predictions | None = None, temperature: float = 1.0
    ) -> HeldOutSums:
        """Return the sums over all rows.

        Parameters
        ----------
        predictions : Predictions
            Those of a model.
        reference : Predictions, optional
            Those of the round to compare with, at its temperature.
        temperature : float
            Temperature of the reference.
        """
        if predictions.losses is None:
            return self.sums(predictions.grid, None if reference is None else reference.grid, temperature)
        rows, count = len(self._set), predictions.grid.shape[1]
        at = TEMPERATURES.index(predictions.temperature or 1.0)
        grid, all_rows = predictions.grid.double(), predictions.losses.double()
        excess = grid - grid[at]  # (T, g); 0 at the temperature of all rows
        losses = all_rows.sum() + excess.sum(1) * (rows / count)
        if reference is None:
            return HeldOutSums(tuple(losses.tolist()), rows=rows)
        assert reference.losses is not None
        others = reference.losses.double()
        squares = (grid - others[self._places]).square().sum(1) * (rows / count)
        squares += excess.var(1) * (rows * (rows - count) / count)
        squares[at] = (all_rows - others).square().sum()
        return HeldOutSums(tuple(losses.tolist()), tuple(squares.tolist()), float(others.sum()), rows)

    def logits(self, predict: Predict, batch_size: int = PREDICT_BATCH) -> Tensor:
        """Return the logits (n, K) of all rows.

        Parameters
        ----------
        predict : callable
            The network, in evaluation mode.
        batch_size : int
            Rows that are predicted at a time.
        """
        return concatenate([predict(self._scaling(rows)) for rows in gather_rows(self._rows, batch_size)])

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
            sets = self._set[part]
            losses = self._losses(logits[part], sets, TEMPERATURES)  # (T, n)
            if reference is None:
                totals[0] += losses.sum(-1).cpu()
                continue
            others = self._losses(reference[part], sets, (temperature,))  # (1, n)
            totals += torch.stack([losses.sum(-1), (losses - others).square().sum(-1)]).cpu()
            reference_loss += float(others.sum())
        return HeldOutSums(tuple(totals[0].tolist()), tuple(totals[1].tolist()), reference_loss, len(logits))

    def _losses(self, logits: Tensor, sets: Tensor, temperatures: tuple[float, ...]) -> Tensor:
        """Return the losses (T, n) of rows in these sets."""
        # Of huge logits, the difference to the largest must not be lost to rounding: the loss would be 0.
        shifted = logits - logits.amax(-1, keepdim=True)
        scaled = shifted / logits.new_tensor(temperatures)[:, None, None]
        return set_loss(scaled, self._joint[sets], self._marginal[sets]).double()

    def _blocks(self, predict: Predict, parts: Iterable[tuple[Tensor, Tensor]]) -> Iterator[tuple[slice, Tensor]]:
        """Yield the places and the logits (n, K) of blocks of rows that fit the cache."""
        values = self._rows[0][0].shape[1:].numel()
        first = 0
        for rows in gather_rows(parts, max(PREDICT_BATCH, BLOCK_VALUES // max(values, 1))):
            yield slice(first, first + len(rows)), predict(self._scaling(rows))
            first += len(rows)

    def _losses_at(self, logits: Tensor, sets: Tensor, temperature: float) -> Tensor:
        """Return the losses (n,) at one temperature, with one exponential for each logit."""
        odds = (logits / temperature).exp_()
        sums = torch.bmm(self._tables.index_select(0, sets), odds.unsqueeze(-1)).squeeze(-1)  # (n, 2)
        lowest, highest = sums.aminmax()
        if lowest > 1 / SAFE and highest < SAFE:
            return (sums[:, 1] / sums[:, 0]).log_()
        return self._losses(logits, sets, (temperature,))[0].to(logits.dtype)
