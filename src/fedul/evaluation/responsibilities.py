"""Responsibilities: class probabilities of a row given its out-of-fold prediction and the class priors of its set.

Predicted probabilities may be over- or underconfident; one temperature for all is estimated from the sets alone, by the
proper loss of `fedul.training.left_out`. Where the class counts of a set are known exactly, responsibilities are scaled
to match them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedul.core import Index, Matrix
from fedul.evaluation.out_of_fold import OutOfFoldPredictions, Standardization

TEMPERATURES = np.geomspace(1 / 8, 16, 43)

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
    scores: Matrix  # (n, K): log-odds of the classes, standardized in the same way for all models
    model_variance: Matrix  # (S, K): variance of the mean score of a set over models
    folds: Index  # (S,): number of the model that predicts a set, -1 if there are several
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

    @property
    def models(self) -> int:
        """Number of models that predict whole sets."""
        return len(np.unique(self.folds[self.folds >= 0]))

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
        scores=_scores(predictions)[order],
        model_variance=np.concatenate(
            [
                np.zeros_like(client.priors) if client.model_variance is None else client.model_variance
                for client in predictions.clients
            ]
        ),
        folds=np.concatenate(
            [
                np.full(len(client.priors), -1) if client.folds is None else client.folds
                for client in predictions.clients
            ]
        ),
        rows=np.concatenate([client.rows for client in predictions.clients])[order],
        sets=sets[order],
        counts=np.bincount(sets, minlength=int(first[-1])).astype(np.float64),
        client=np.repeat(np.arange(len(sizes)), sizes),
        exact=np.repeat([client.exact for client in predictions.clients], sizes),
        test_prior=predictions.test_prior,
    )
    return table, np.concatenate([client.priors for client in predictions.clients])


def _scores(predictions: OutOfFoldPredictions) -> Matrix:
    scores = [client.scores for client in predictions.clients if client.scores is not None]
    if len(scores) == len(predictions.clients):
        return np.concatenate(scores)
    probabilities = np.concatenate([client.probabilities for client in predictions.clients])
    return Standardization.of(probabilities)(probabilities)


@dataclass(frozen=True)
class Temperature:
    """The best temperature, and the standard error of its logarithm."""

    best: float
    error: float

    @property
    def ends(self) -> tuple[float, float]:
        """Temperatures one standard error lower and higher, but at most by a factor of two."""
        factor = float(np.exp(min(self.error, np.log(2))))
        return self.best / factor, self.best * factor


def estimate_temperature(table: PredictionTable, priors: Matrix) -> Temperature:
    """Estimate the temperature with the least -log p(x | set) / p(x), in which sets are independent.

    Its standard error is the larger one of those by rows and by sets: sets may vary beyond sampling.
    """
    chosen = np.arange(len(table.sets))
    if len(chosen) > TEMPERATURE_ROWS:
        chosen = np.sort(np.random.default_rng(0).choice(chosen, TEMPERATURE_ROWS, replace=False))
    mix = table.counts @ priors / table.counts.sum()
    sets, logs = table.sets[chosen], table.log_probabilities[chosen] - np.log(table.test_prior)
    ratio = priors / np.maximum(mix, 1e-12)

    def losses(temperature: float) -> Matrix:
        joint = np.exp((logs - logs.max(axis=1, keepdims=True)) / temperature) * mix
        posterior = joint / joint.sum(axis=1, keepdims=True)
        density: Matrix = np.einsum("nk,nk->n", posterior, ratio[sets])
        return -np.log(np.maximum(density, 1e-12))

    total = np.array([losses(each).sum() for each in TEMPERATURES])
    best = int(total.argmin())
    middle = min(max(best, 1), len(TEMPERATURES) - 2)
    step = np.log(TEMPERATURES[1] / TEMPERATURES[0])
    lower, here, higher = (losses(each) for each in TEMPERATURES[middle - 1 : middle + 2])
    curvature = max(float((lower - 2 * here + higher).sum()) / step**2, 1e-9)
    slopes = np.bincount(sets, (higher - lower) / (2 * step), minlength=len(priors))
    by_sets = np.sqrt(np.square(slopes - slopes.mean()).sum()) / curvature
    share = np.sqrt(len(chosen) / len(table.sets))
    return Temperature(float(TEMPERATURES[best]), float(max(curvature**-0.5, by_sets) * share))


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
