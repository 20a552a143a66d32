"""Information that the set of a row gives about its class, relative to a label: Fisher information about the logits.

Only the expected rows of each class in each set enter, n_m Pi_mk. Take an input where the class posterior under
the test prior is eta, so that A_mk = n_m Pi_mk eta_k / pi_k of the rows there are of class k and in set m. Then labels
inform about the logits z by F_L and the index of the set by F_S, both summed over clients:

    F_L = diag(A_k) - A A^T / A.     with A_k = sum_m A_mk
    F_S = sum_m A_m A_m^T / A_m.  -  A A^T / A.

F_L - F_S is a sum of covariances, so a set never informs more than a label, nor merged sets more than the sets.
On the boundary of two classes, where eta is shared by a and b alone, both are a number times (e_a - e_b)(e_a - e_b)^T:

    F_L = h(A_a, A_b)    F_S = h(A_a, A_b) - sum_m h(A_ma, A_mb)    h(u, v) = u v / (u + v)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedul.core import RANK_TOLERANCE, Federation, Matrix

Numbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ExpectedRows:
    """Expected rows of each class in the sets of all clients."""

    rows: Matrix  # (S, K)
    starts: Numbers  # (C,): the first set of each client
    test_prior: Matrix  # (K,)

    @classmethod
    def of(cls, federation: Federation) -> ExpectedRows:
        """Return the expected rows of a federation."""
        sets = [len(client.priors) for client in federation.clients]
        rows = [len(c.train) * c.set_priors[:, None] * c.priors for c in federation.clients]
        return cls(np.concatenate(rows), np.cumsum([0, *sets[:-1]]), federation.test_prior)

    def pooled(self) -> ExpectedRows:
        """Return the same sets as those of one client: they are all compared with each other."""
        return ExpectedRows(self.rows, self.starts[:1], self.test_prior)

    @property
    def sizes(self) -> Matrix:
        """Rows in each set (S,)."""
        sizes: Matrix = self.rows.sum(axis=1)
        return sizes

    @property
    def client_of(self) -> Numbers:
        """Number of the client of each set (S,)."""
        return np.repeat(np.arange(len(self.starts)), np.diff([*self.starts, len(self.rows)]))

    def by_client(self, values: Matrix) -> Matrix:
        """Return the sums over the sets of each client (C, ...)."""
        sums: Matrix = np.add.reduceat(values, self.starts, axis=0)
        return sums


@dataclass(frozen=True, eq=False)
class Efficiency:
    """Information of sets relative to labels, for every client (C,) and every pair of classes (K, K)."""

    clients: Matrix
    pairs: Matrix


def at_boundary(expected: ExpectedRows, share: float = 0.5) -> Efficiency:
    """Return the efficiency at rows that are of class a (row) with probability `share`, else of class b (column)."""
    prior = expected.test_prior
    weighted = expected.rows / prior  # (S, K)
    totals = expected.by_client(weighted)  # (C, K)
    pairs = np.zeros((len(prior), len(prior)))
    labels, sets = np.zeros(len(totals)), np.zeros(len(totals))
    for a in range(len(prior)):
        label = _half_harmonic(share * totals[:, [a]], (1 - share) * totals)  # (C, K)
        lost = expected.by_client(_half_harmonic(share * weighted[:, [a]], (1 - share) * weighted))
        gained = label - lost
        pairs[a] = ratio(gained.sum(axis=0), label.sum(axis=0))
        others = np.arange(len(prior)) != a
        labels += prior[a] * (label[:, others] @ prior[others])
        sets += prior[a] * (gained[:, others] @ prior[others])
    np.fill_diagonal(pairs, 0)  # zero except for rounding
    return Efficiency(ratio(sets, labels), pairs)


def at_uninformative_inputs(expected: ExpectedRows) -> Matrix:
    """Return the efficiency (K, K) at rows that give no information about their class (eta = pi).

    The Cramér-Rao bounds of z_a - z_b are compared. Sets inform less about a and b there than on their boundary: a set
    with more of a may be one with less of a third class.
    """
    sizes, totals = expected.sizes, expected.by_client(expected.rows)
    mixes = totals / totals.sum(axis=1, keepdims=True)  # (C, K)
    centred = expected.rows / sizes[:, None] - mixes[expected.client_of]
    sets = np.linalg.qr(centred * np.sqrt(sizes)[:, None]).R
    label = np.diag(totals.sum(axis=0)) - totals.T @ mixes
    values, vectors = np.linalg.eigh(label)
    labels = np.sqrt(np.clip(values, 0, None))[:, None] * vectors.T  # F_L = labels^T labels
    scale = float(np.sqrt(sizes.sum()))  # squared: the largest information of all labels in any direction
    return ratio(1 / _variances(sets, scale), 1 / _variances(labels, scale))


def _variances(root: Matrix, scale: float) -> Matrix:
    """Return (e_a - e_b)^T F^+ (e_a - e_b) (K, K) for F = root^T root; infinite outside the range of F."""
    _, values, directions = np.linalg.svd(root)
    classes = root.shape[1]
    seen = np.flatnonzero(values > RANK_TOLERANCE * scale)
    inverse = directions[seen].T / values[seen]  # (K, rank)
    unseen = np.delete(directions, seen, axis=0)  # (K - rank, K), with the direction of equal logits
    variances: Matrix = _squared_distances(inverse)
    out_of_reach = _squared_distances(unseen.T) > RANK_TOLERANCE
    variances[out_of_reach | np.eye(classes, dtype=bool)] = np.inf
    return variances


def _squared_distances(points: Matrix) -> Matrix:
    inner = points @ points.T
    squares = np.diag(inner)
    distances: Matrix = squares[:, None] + squares - 2 * inner
    return distances


def _half_harmonic(u: Matrix, v: Matrix) -> Matrix:
    """Return u v / (u + v), and 0 where both are 0."""
    return ratio(u * v, u + v)


def ratio(part: Matrix, whole: Matrix) -> Matrix:
    """Return part / whole, at least 0, and 0 where the whole is 0."""
    share: Matrix = np.divide(part, whole, out=np.zeros(np.broadcast(part, whole).shape), where=whole > 0)
    return np.clip(share, 0, None)


def average_over_pairs(efficiency: Matrix, test_prior: Matrix) -> float:
    """Return the harmonic mean over pairs of classes: errors add up, and that of a pair grows as 1 / efficiency."""
    weights = np.outer(test_prior, test_prior)
    others = ~np.eye(len(test_prior), dtype=bool)
    if (efficiency[others] <= 0).any():
        return 0.0
    return float(weights[others].sum() / (weights[others] / efficiency[others]).sum())


@dataclass(frozen=True, eq=False)
class Split:
    """A federation with some sets split in two halves that differ in two classes."""

    sets: Numbers
    shift: float  # of the share of the first class up and of the second down in one half, the reverse in the other
    after: ExpectedRows


def split(expected: ExpectedRows, a: int, b: int, *, everywhere: bool, shift: float = 0.05) -> Split:
    """Split all sets, or the one that helps most, into halves with more of class a and more of class b.

    At uninformative inputs, halves with priors Pi_m + delta (e_a - e_b) and Pi_m - delta (e_a - e_b) add n_m delta^2
    to the information about the pair, exactly; so this determines which set helps most.
    """
    sizes = expected.sizes
    shifts = np.minimum(shift, expected.rows[:, [a, b]].min(axis=1) / sizes / 2)  # no half is without either class
    best = int(np.argmax(sizes * shifts**2))
    chosen = np.arange(len(sizes)) if everywhere else np.array([best])
    contrast = np.eye(len(expected.test_prior))[a] - np.eye(len(expected.test_prior))[b]
    moved = (sizes * shifts)[chosen, None] / 2 * contrast  # (split sets, K)
    times = np.ones(len(sizes), np.int64)
    times[chosen] = 2
    rows = np.repeat(expected.rows / times[:, None], times, axis=0)
    first = (np.cumsum(times) - times)[chosen]  # where the first half of each split set is now
    rows[first] += moved
    rows[first + 1] -= moved
    starts = (np.cumsum(times) - times)[expected.starts]
    return Split(chosen, float(shifts[best]), ExpectedRows(rows, starts, expected.test_prior))
