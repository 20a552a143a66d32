"""Responsibilities: class probabilities of a row given its out-of-fold prediction and the class priors of its set.

Predicted probabilities may be over- or underconfident; one temperature for all is estimated from the sets alone, by
-log Q, a proper loss. Where the class counts of a set are known exactly, responsibilities are scaled to match them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedul.core import Index, Matrix
from fedul.evaluation.out_of_fold import OutOfFoldPredictions

TEMPERATURES = 2.0 ** np.arange(-3, 3.01, 0.25)

TEMPERATURE_ROWS = 20_000
"""Rows from which the temperature is estimated, at most."""

SWEEPS = 30
"""Iterations between rows that sum to one and sets that sum to their class counts."""


@dataclass(frozen=True, eq=False)
class PredictionTable:
    """Predictions of all clients in one table, ordered by set; sets are numbered over all clients."""

    log_probabilities: Matrix  # (n, K), under the test prior
    predicted: Index  # (n,)
    features: Matrix  # (n, d)
    rows: Index  # (n,): equal where one row is in several sets
    sets: Index  # (n,), ascending
    counts: Matrix  # (S,): rows of each set
    client: Index  # (S,)
    exact: NDArray[np.bool_]  # (S,)
    test_prior: Matrix  # (K,)

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.test_prior)

    def over_sets(self, values: Matrix) -> Matrix:
        """Return the sums (S, ...) of values (n, ...) over each set."""
        total = np.zeros((len(self.counts), *values.shape[1:]))
        filled = self.counts > 0
        starts = (np.cumsum(self.counts) - self.counts).astype(np.int64)
        total[filled] = np.add.reduceat(values, starts[filled], axis=0)
        return total

    def shares(self) -> Matrix:
        """Return the share of each prediction in each set (S, K)."""
        return self.over_sets(np.eye(self.classes)[self.predicted]) / np.maximum(self.counts, 1)[:, None]


def flatten(predictions: OutOfFoldPredictions) -> tuple[PredictionTable, Matrix]:
    """Return the rows of all clients in one table, and the class priors of all sets (S, K)."""
    first = np.cumsum([0] + [len(client.priors) for client in predictions.clients])
    sets = np.concatenate([client.sets + start for client, start in zip(predictions.clients, first[:-1], strict=True)])
    order = np.argsort(sets, kind="stable")
    probabilities = np.concatenate([client.probabilities for client in predictions.clients])[order]
    sizes = np.diff(first)
    table = PredictionTable(
        log_probabilities=np.log(np.maximum(probabilities, 1e-30)),
        predicted=probabilities.argmax(axis=1),
        features=np.concatenate([client.features for client in predictions.clients])[order],
        rows=np.concatenate([client.rows for client in predictions.clients])[order],
        sets=sets[order],
        counts=np.bincount(sets, minlength=int(first[-1])).astype(np.float64),
        client=np.repeat(np.arange(len(sizes)), sizes),
        exact=np.repeat([client.exact for client in predictions.clients], sizes),
        test_prior=predictions.test_prior,
    )
    return table, np.concatenate([client.priors for client in predictions.clients])


@dataclass(frozen=True)
class Temperature:
    """The best temperature, and the ends of one standard error around it."""

    best: float
    low: float
    high: float


def estimate_temperature(table: PredictionTable, priors: Matrix) -> Temperature:
    """Estimate the temperature with the least -log Q."""
    chosen = np.arange(len(table.sets))
    if len(chosen) > TEMPERATURE_ROWS:
        chosen = np.random.default_rng(0).choice(chosen, TEMPERATURE_ROWS, replace=False)
    of_client = np.zeros((int(table.client.max()) + 1, table.classes))
    np.add.at(of_client, table.client, table.counts[:, None] * priors)
    mix = (of_client / np.maximum(of_client.sum(axis=1, keepdims=True), 1))[table.client[table.sets[chosen]]]
    with np.errstate(divide="ignore"):  # a class that is absent from a set: log 0 is -inf, as it should be
        of_set = np.log(priors[table.sets[chosen]] / table.test_prior)
        marginal = np.log(mix / table.test_prior)
    logs = table.log_probabilities[chosen]
    losses = np.array([(_logsumexp(logs / t + marginal) - _logsumexp(logs / t + of_set)).sum() for t in TEMPERATURES])
    losses *= len(table.sets) / len(chosen)
    near = TEMPERATURES[losses <= losses.min() + 0.5]
    return Temperature(float(TEMPERATURES[losses.argmin()]), float(near[0]), float(near[-1]))


def estimate_responsibilities(table: PredictionTable, priors: Matrix, divisor: float) -> Matrix:
    """Return r_ik (n, K), the probability that row i is of class k given the row and its set."""
    with np.errstate(divide="ignore"):
        shift = np.log(priors / table.test_prior)
    logs = table.log_probabilities / divisor + shift[table.sets]
    shares: Matrix = np.exp(logs - _logsumexp(logs)[:, None])
    if table.exact.any():
        wanted = priors * table.counts[:, None]
        for _ in range(SWEEPS):
            factor = wanted / np.maximum(table.over_sets(shares), 1e-12)
            factor[~table.exact] = 1.0
            shares *= factor[table.sets]
            shares /= shares.sum(axis=1, keepdims=True)
    return shares


def count_confusion(table: PredictionTable, shares: Matrix) -> Matrix:
    """Return how often rows of class k are predicted as j (K, K), weighting rows by their responsibilities."""
    counts = np.stack(
        [np.bincount(table.predicted, shares[:, k], minlength=table.classes) for k in range(table.classes)]
    )
    total: Matrix = counts / np.maximum(shares.sum(axis=0), 1e-12)[:, None]
    return total


def _logsumexp(logs: Matrix) -> Matrix:
    top = logs.max(axis=1)
    sums: Matrix = top + np.log(np.exp(logs - top[:, None]).sum(axis=1))
    return sums
