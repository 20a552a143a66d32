"""What becomes of predictions when class priors are a little otherwise than was said.

Training again with other priors would tell, at great cost. What it would come to can be foretold row by row: a network
learns how likely each set is at x, whatever the priors are said to be; priors only turn that into class probabilities.
So the class probabilities under other priors are those that explain the same set probabilities best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fedul.federation import Federation
from fedul.priors import Matrix
from fedul.randomness import numpy_generator

ROWS = 200
"""Rows that are looked at; more would not change a share by more than a few points."""
DRAWS = 40
DRAWS_A_SET = 4
STEPS = 150
MOST_SETS = 20
"""Sets that are looked at one by one, the least sure ones."""
TINY = 1e-300
JEFFREYS = 0.5
"""What is added to counts that priors are as sure as, so that a class that was not seen may still be there."""


@dataclass(frozen=True)
class UnsureSet:
    """A set whose priors are not sure, and by how much they alone may change a probability."""

    client: str
    set: str
    change: float


@dataclass(frozen=True)
class PriorSensitivity:
    """How far predictions may move within what is known of the priors; all figures are means over draws."""

    moved: float  # share of rows with another class
    moved_high: float  # in one draw of forty, more than this
    change: float  # of a probability, in the mean over classes
    accuracy_lost: float  # by predicting with priors that are off, as far as the probabilities are right
    sets: Sequence[UnsureSet]  # those that matter most first

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def prior_sensitivity(
    federation: Federation, counts: Sequence[Matrix], probabilities: Matrix, *, seed: int = 0, sets: int = 10
) -> PriorSensitivity | None:
    """None where all priors are sure. `counts` (M,) a client: as sure as counts of so many cases make them.

    `probabilities` (n, K), under the test prior, are of rows of the population that the classifier is for.
    """
    if all(np.isinf(own).all() for own in counts):
        return None
    generator = numpy_generator(seed, "prior sensitivity")
    matrices = [client.priors for client in federation.clients]
    chosen = generator.permutation(len(probabilities))[:ROWS]
    now = _Explained(federation, probabilities[chosen])
    moved, changes, lost = [], [], []
    for _ in range(DRAWS):
        then = now.with_priors(drawn_priors(matrices, counts, generator))
        moved.append(now.moved(then))
        changes.append(now.change(then))
        lost.append(now.accuracy_lost(then))
    return PriorSensitivity(
        float(np.mean(moved)),
        float(np.quantile(moved, 0.975)),
        float(np.mean(changes)),
        float(np.mean(lost)),
        tuple(_which_matter(federation, counts, now, generator)[:sets]),
    )


def _which_matter(
    federation: Federation, counts: Sequence[Matrix], now: _Explained, generator: np.random.Generator
) -> list[UnsureSet]:
    """Every unsure set by itself, all others as they were said to be; of very many, the least sure ones."""
    unsure = [(own[m], c, m) for c, own in enumerate(counts) for m in np.flatnonzero(np.isfinite(own)).tolist()]
    found = []
    for _, c, m in sorted(unsure)[:MOST_SETS]:
        client, alone = federation.clients[c], np.full(len(counts[c]), np.inf)
        alone[m] = counts[c][m]
        changes = []
        for _ in range(DRAWS_A_SET):
            priors = [other.priors for other in federation.clients]
            priors[c] = _drawn(client.priors, alone, generator)
            changes.append(now.change(now.with_priors(priors)))
        found.append(UnsureSet(client.name, client.set_names[m], float(np.mean(changes))))
    return sorted(found, key=lambda each: -each.change)


def drawn_priors(priors: Sequence[Matrix], counts: Sequence[Matrix], generator: np.random.Generator) -> list[Matrix]:
    """The class priors of all clients as they might be."""
    return [_drawn(own, sure, generator) for own, sure in zip(priors, counts, strict=True)]


def _drawn(priors: Matrix, counts: Matrix, generator: np.random.Generator) -> Matrix:
    """Priors as they might be, given counts that are as sure as they are."""
    drawn = priors.copy()
    for m in np.flatnonzero(np.isfinite(counts)):
        drawn[m] = generator.dirichlet(counts[m] * priors[m] + JEFFREYS)
    return drawn


class _Explained:
    """Class probabilities of some rows, as what explains how likely each set is there."""

    def __init__(self, federation: Federation, probabilities: Matrix) -> None:
        self.probabilities = probabilities
        self._prior = federation.test_prior
        self._clients = federation.clients
        self._sizes = [client.set_priors for client in federation.clients]
        ratios = probabilities / self._prior  # (n, K): u, with p(x | k) in proportion
        # How many rows of each set there would be at x: how likely a set is there, and how much a client has to say.
        self._rows = [
            len(client.train) * sizes * (ratios @ client.priors.T)
            for client, sizes in zip(self._clients, self._sizes, strict=True)
        ]

    def with_priors(self, priors: Sequence[Matrix]) -> Matrix:
        """The class probabilities (n, K) of the same rows that explain the same sets under other priors.

        The steps never lower the likelihood sum_m q_m log Q_m: a logarithm that is subtracted lies below its tangent.
        """
        ratios = self.probabilities / self._prior
        joints = [sizes[:, None] * own for sizes, own in zip(self._sizes, priors, strict=True)]  # (M, K)
        for _ in range(STEPS):
            gained, spent = np.zeros_like(ratios), np.zeros_like(ratios)
            for joint, rows in zip(joints, self._rows, strict=True):
                gained += (rows / np.maximum(ratios @ joint.T, TINY)) @ joint
                mix = joint.sum(axis=0)
                spent += (rows.sum(axis=1) / np.maximum(ratios @ mix, TINY))[:, None] * mix
            before, ratios = ratios, ratios * gained / np.maximum(spent, TINY)
            ratios /= (ratios * self._prior).sum(axis=1, keepdims=True)
            if np.abs(ratios - before).max() < 1e-4:
                break
        return ratios * self._prior

    def moved(self, then: Matrix) -> float:
        """The share of rows that are given another class."""
        return float((then.argmax(axis=1) != self.probabilities.argmax(axis=1)).mean())

    def change(self, then: Matrix) -> float:
        """By how much a probability changes, in the mean over rows and classes."""
        return float(np.abs(then - self.probabilities).mean())

    def accuracy_lost(self, then: Matrix) -> float:
        best = self.probabilities.max(axis=1)
        return float((best - self.probabilities[np.arange(len(then)), then.argmax(axis=1)]).mean())
