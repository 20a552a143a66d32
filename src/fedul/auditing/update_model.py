"""What an update of a client looks like to an attacker who knows everything but which canaries are in the data.

In a round a client moves its weights by about minus

    u = sum_j r_j + sum_i b_i g_i + e

with the gradients r_j of its rows, g_i of the canaries, each times learning rate and number of steps over number of
rows, and b_i in {0, 1}. The covariance of e is that of the noise of private rows and of random batches. The steps of
Adam are not along gradients: each coordinate is divided by the root mean square of the gradients of batches, and the
scale is fitted to the update.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedul.auditing.row_gradients import RowGradientModel, midpoint
from fedul.core import UnlabeledSets, Weights
from fedul.engines.base import Broadcast
from fedul.engines.simulation.private_client import count_local_steps
from fedul.methods.task import Task
from fedul.privacy.row_privacy import plan_row_privacy
from fedul.training.prepare import PreparedRun

MOST_ROWS = 1024
"""Rows of a client whose gradients are computed; of more, a random part stands for all."""


@dataclass(frozen=True, eq=False)
class UpdateModel:
    """Mean and covariance of the update of a client, or of a sum of updates.

    Parameters
    ----------
    canaries : Tensor of shape (m, d)
        What each canary adds, if it is in the data.
    others : Tensor of shape (d,)
        What all other rows add.
    covariance : Tensor of shape (d, d)
        Covariance of the rest.
    fitted : bool
        Whether the scale is not known.
    """

    canaries: Tensor
    others: Tensor
    covariance: Tensor
    fitted: bool = False

    def __add__(self, other: UpdateModel) -> UpdateModel:
        return UpdateModel(
            torch.cat([self.canaries, other.canaries]),
            self.others + other.others,
            self.covariance + other.covariance,
            self.fitted or other.fitted,
        )

    @property
    def expected(self) -> Tensor:
        """Mean of the update (d,) if each canary is included with probability 1/2."""
        return self.others + self.canaries.sum(0) / 2

    def scaled_to(self, moved: Tensor) -> UpdateModel:
        """Return the model with the scale that fits an update best, if its scale is not known."""
        expected = self.expected
        if not self.fitted or not expected.any():
            return self
        scale = float((moved @ expected) / expected.square().sum())
        return UpdateModel(self.canaries * scale, self.others * scale, self.covariance * scale**2)


def model_update(
    run: PreparedRun,
    gradients: RowGradientModel,
    client: UnlabeledSets,
    canaries: int,
    broadcast: Broadcast,
    change: Weights,
    coordinates: Tensor | None = None,
) -> UpdateModel:
    """Return what the update of a client looks like.

    Parameters
    ----------
    run : PreparedRun
        The run.
    gradients : RowGradientModel
        Gradients of rows.
    client : UnlabeledSets
        The client with all its canaries, which are its last rows.
    canaries : int
        Number of canaries of the client.
    broadcast : Broadcast
        What the coordinator has sent.
    change : dict of str to Tensor
        The update, or the mean update.
    coordinates : Tensor, optional
        Coordinates of the gradient to use.
    """
    config = run.recipe.config
    task = gradients.task(client)
    rows = len(task) if config.protects_rows else len(task) - canaries // 2
    steps = count_local_steps(config, rows)
    others, weight = _sample(task, canaries)
    positions = torch.cat([others, torch.arange(len(task) - canaries, len(task))])
    weights = midpoint(broadcast.weights, change)
    values = gradients.gradients(task, positions, broadcast.weights, weights, broadcast.directive, coordinates)
    values *= config.rate_in(broadcast.round) * _effective(config.momentum) * steps / rows
    known, added = values[: len(others)], values[len(others) :]
    covariance = values.new_zeros(values.shape[1], values.shape[1])
    if weight > 1:  # a part of the rows stands for all of them
        covariance += weight * (weight - 1) * _products(known - known.mean(0))
    if config.protects_rows:
        plan = plan_row_privacy(config, rows, config.rounds, client.name)
        repeats = (1 - plan.rate) / (plan.steps * plan.rate)
        covariance += repeats * (weight * _products(known) + _products(added) / 2)
        noise = plan.noise * plan.clip * config.rate_in(broadcast.round) / (plan.rate * rows)
        covariance += plan.steps * noise**2 * torch.eye(len(covariance), dtype=values.dtype)
    model = UpdateModel(added, weight * known.sum(0), covariance)
    return _of_adam(model, known, config.batch_size or rows) if config.optimizer_name == "adam" else model


def _products(rows: Tensor) -> Tensor:
    """Return the sum over rows (n, d) of their products (d, d), in single precision, which is enough for noise."""
    single = rows.float()
    return (single.T @ single).double()


def _sample(task: Task, canaries: int) -> tuple[Tensor, float]:
    """Return positions of rows that are no canaries, and how many rows each stands for."""
    count = len(task) - canaries
    if count <= MOST_ROWS:
        return torch.arange(count), 1.0
    chosen = torch.randperm(count, generator=torch.Generator().manual_seed(0))[:MOST_ROWS]
    return chosen, count / MOST_ROWS


def _effective(momentum: float) -> float:
    """Return about how many plain steps a step with momentum is worth, in a round of many steps."""
    return 1 / (1 - momentum)


def _of_adam(model: UpdateModel, known: Tensor, batch: int) -> UpdateModel:
    """Return the model of steps that are divided by the root mean square of the gradients of batches."""
    square = known.mean(0).square() + known.var(0) / batch
    divisor = square.sqrt() + 1e-3 * square.mean().sqrt()
    return UpdateModel(
        model.canaries / divisor,
        model.others / divisor,
        model.covariance / divisor[:, None] / divisor,
        fitted=True,
    )
