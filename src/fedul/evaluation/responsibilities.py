"""Which class each judged row is of, as far as its classifier and the class priors of its set tell.

A model's probabilities may be too sure or not sure enough; one temperature for all is found from the sets alone, by
-log Q, which is proper. Where the class counts of a set are known exactly, responsibilities are moved to meet them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedul.evaluation.judged import Judged
from fedul.inputs import Index
from fedul.priors import Matrix

TEMPERATURES = 2.0 ** np.arange(-3, 3.01, 0.25)

ENOUGH = 20_000
"""Rows that tell the temperature as well as more would."""

SWEEPS = 30
"""Turns between rows that sum to one and sets that sum to their class counts; more change nothing."""


@dataclass(frozen=True, eq=False)
class Stacked:
    """The rows of all clients in one table, in the order of their sets, which are counted over all clients."""

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
        return len(self.test_prior)

    def over_sets(self, values: Matrix) -> Matrix:
        """Sums (S, ...) of values (n, ...) over each set."""
        total = np.zeros((len(self.counts), *values.shape[1:]))
        there = self.counts > 0
        starts = (np.cumsum(self.counts) - self.counts).astype(np.int64)
        total[there] = np.add.reduceat(values, starts[there], axis=0)
        return total

    def shares(self) -> Matrix:
        """How common each prediction is in each set (S, K)."""
        return self.over_sets(np.eye(self.classes)[self.predicted]) / np.maximum(self.counts, 1)[:, None]


def stacked(judged: Judged) -> tuple[Stacked, Matrix]:
    """All clients' rows in one table, and the class priors of all sets (S, K)."""
    first = np.cumsum([0] + [len(client.priors) for client in judged.clients])
    sets = np.concatenate([client.sets + start for client, start in zip(judged.clients, first[:-1], strict=True)])
    order = np.argsort(sets, kind="stable")
    probabilities = np.concatenate([client.probabilities for client in judged.clients])[order]
    sizes = np.diff(first)
    table = Stacked(
        log_probabilities=np.log(np.maximum(probabilities, 1e-30)),
        predicted=probabilities.argmax(axis=1),
        features=np.concatenate([client.features for client in judged.clients])[order],
        rows=np.concatenate([client.rows for client in judged.clients])[order],
        sets=sets[order],
        counts=np.bincount(sets, minlength=int(first[-1])).astype(np.float64),
        client=np.repeat(np.arange(len(sizes)), sizes),
        exact=np.repeat([client.exact for client in judged.clients], sizes),
        test_prior=judged.test_prior,
    )
    return table, np.concatenate([client.priors for client in judged.clients])


@dataclass(frozen=True)
class Temperature:
    """The best divisor of log probabilities, and the ends of one standard error around it."""

    best: float
    low: float
    high: float


def temperature(table: Stacked, priors: Matrix) -> Temperature:
    """From the sets that rows are in: the divisor with the least -log Q."""
    chosen = np.arange(len(table.sets))
    if len(chosen) > ENOUGH:
        chosen = np.random.default_rng(0).choice(chosen, ENOUGH, replace=False)
    of_client = np.zeros((int(table.client.max()) + 1, table.classes))
    np.add.at(of_client, table.client, table.counts[:, None] * priors)
    mix = (of_client / np.maximum(of_client.sum(axis=1, keepdims=True), 1))[table.client[table.sets[chosen]]]
    with np.errstate(divide="ignore"):  # a class that a set has not: log 0 is -inf, as it should be
        own = np.log(priors[table.sets[chosen]] / table.test_prior)
        marginal = np.log(mix / table.test_prior)
    logs = table.log_probabilities[chosen]
    losses = np.array([(_logsumexp(logs / t + marginal) - _logsumexp(logs / t + own)).sum() for t in TEMPERATURES])
    losses *= len(table.sets) / len(chosen)
    near = TEMPERATURES[losses <= losses.min() + 0.5]
    return Temperature(float(TEMPERATURES[losses.argmin()]), float(near[0]), float(near[-1]))


def responsibilities(table: Stacked, priors: Matrix, divisor: float) -> Matrix:
    """r_ik (n, K): the chance that row i is of class k, given the row and its set."""
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


def confusion(table: Stacked, shares: Matrix) -> Matrix:
    """How often rows of class k are predicted as j (K, K), each row counted with its responsibilities."""
    counts = np.stack(
        [np.bincount(table.predicted, shares[:, k], minlength=table.classes) for k in range(table.classes)]
    )
    total: Matrix = counts / np.maximum(shares.sum(axis=0), 1e-12)[:, None]
    return total


def _logsumexp(logs: Matrix) -> Matrix:
    top = logs.max(axis=1)
    sums: Matrix = top + np.log(np.exp(logs - top[:, None]).sum(axis=1))
    return sums
