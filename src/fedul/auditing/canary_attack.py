"""Guesses which canaries a run was trained on, from the updates that the coordinator receives.

The attacker is the one of the guarantee: it knows all rows and priors, all canaries, the weights of every round and the
updates, and not which canaries are in the data. Every update is about linear in the coins of the canaries
(`update_model`), so the coins are estimated by one linear regression over all rounds. The signs of the estimates are
the guesses; canaries whose estimates are closest to undecided are not guessed. This is the white-box attack of Steinke
et al. (2023, algorithm 3: products of updates and gradients of canaries) without the correlations of the gradients.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedul.auditing.canaries import Canaries
from fedul.auditing.row_gradients import MOST_COORDINATES, RowGradientModel
from fedul.auditing.update_model import UpdateModel, model_update
from fedul.core import Matrix, RoundSums, Update, Weights
from fedul.engines.base import Broadcast
from fedul.training.prepare import PreparedRun

COIN_VARIANCE = 0.25
"""Variance of a coin in {0, 1}."""
SLACK = 1e-3
"""Part of the mean variance of a coordinate that is added to it: steps of a round are not exactly along gradients."""
MOST_VALUES = 1e9
"""Values of gradients that are computed for a run; of a longer one, every n-th round is used."""
MOST_UPDATES = 200
"""Updates of clients that are used, as far as every n-th round allows."""


class CanaryAttack:
    """Collects what updates tell about canaries.

    Parameters
    ----------
    run : PreparedRun
        The run that is attacked, before its first round.
    canaries : Canaries
        The canaries; which ones are included is not used.
    """

    def __init__(self, run: PreparedRun, canaries: Canaries) -> None:
        config, clients = run.recipe.config, canaries.complete.clients
        clip = config.dp_clip if config.protects_rows else None
        self._gradients = RowGradientModel.of(run.context.module, run.context.method, canaries.complete.spec, clip)
        self._canaries, self._clients = canaries, {client.name: n for n, client in enumerate(clients)}
        parameters = sum(p.numel() for p in run.context.module.parameters())
        rows = sum(len(client.train) for client in clients)
        work = max(rows * parameters / MOST_VALUES, len(clients) / MOST_UPDATES)  # of one round
        self._stride = max(1, round(config.rounds * work))
        self._coordinates: Tensor | None = None
        self._sums: dict[tuple[int, ...], tuple[Tensor, Tensor]] = {}

    def observe(self, run: PreparedRun, broadcast: Broadcast, answer: Sequence[Update] | RoundSums) -> None:
        """Use what the coordinator receives in a round."""
        if (broadcast.round - 1) % self._stride:
            return
        if self._coordinates is None:
            self._coordinates = self._choose_coordinates(broadcast)
        if isinstance(answer, RoundSums):
            everyone = range(len(self._clients))
            parts = [self._model(run, broadcast, number, answer.mean.delta) for number in everyone]
            self._add(tuple(everyone), sum(parts[1:], parts[0]), answer.mean.delta, answer.clients)
        else:
            for update in answer:
                number = self._clients[update.client]
                self._add((number,), self._model(run, broadcast, number, update.delta), update.delta)

    def scores(self) -> Matrix:
        """Return the estimate (m,) of each coin, less 1/2: positive for canaries that were probably included."""
        scores = np.zeros(len(self._canaries))
        for numbers, (matrix, right) in self._sums.items():
            at = np.concatenate([self._canaries.of_client(number) for number in numbers])
            prior = torch.eye(len(right), dtype=right.dtype) / COIN_VARIANCE
            scores[at] += torch.linalg.solve(matrix + prior, right).numpy()
        return scores

    def _model(self, run: PreparedRun, broadcast: Broadcast, number: int, change: Weights) -> UpdateModel:
        client, count = self._canaries.complete.clients[number], len(self._canaries.of_client(number))
        return model_update(run, self._gradients, client, count, broadcast, change, self._coordinates)

    def _add(self, numbers: tuple[int, ...], model: UpdateModel, change: Weights, times: float = 1.0) -> None:
        """Add the equations of an update, or of a sum of updates, to the regression."""
        moved = -times * self._gradients.flatten(change)[self._coordinates].double()
        model = model.scaled_to(moved)
        rest = moved - model.expected
        covariance, d = model.covariance, len(moved)
        explained = float(covariance.diagonal().mean() + COIN_VARIANCE * model.canaries.square().sum(0).mean())
        unexplained = max(float(rest.square().mean()) - explained, 0.0)
        covariance = covariance + (unexplained + SLACK * explained) * torch.eye(d, dtype=rest.dtype)
        weighted = torch.linalg.solve(covariance, model.canaries.T)  # (d, m)
        matrix, right = model.canaries @ weighted, weighted.T @ rest
        if numbers in self._sums:
            matrix, right = matrix + self._sums[numbers][0], right + self._sums[numbers][1]
        self._sums[numbers] = matrix, right

    def _choose_coordinates(self, broadcast: Broadcast) -> Tensor:
        """Return the coordinates in which the gradients of canaries are largest."""
        size = None
        for number, client in enumerate(self._canaries.complete.clients):
            task = self._gradients.task(client)
            at = torch.arange(len(task) - len(self._canaries.of_client(number)), len(task))
            weights = broadcast.weights
            found = self._gradients.gradients(task, at, weights, weights, broadcast.directive).square().sum(0)
            size = found if size is None else size + found
        assert size is not None
        return size.topk(min(MOST_COORDINATES, len(size))).indices.sort().values


def count_right(scores: Matrix, included: NDArray[np.bool_], shares: Sequence[float]) -> list[tuple[int, int]]:
    """Return guesses and right ones, if a share of the canaries is guessed: those with the largest scores.

    >>> count_right(np.array([3.0, -2.0, 0.1, 0.2]), np.array([True, False, False, True]), [0.5, 1.0])
    [(2, 2), (4, 3)]
    """
    right = (scores > 0) == included
    order = np.argsort(-np.abs(scores), kind="stable")
    counts = [max(1, round(share * len(scores))) for share in shares]
    return [(count, int(right[order[:count]].sum())) for count in counts]
