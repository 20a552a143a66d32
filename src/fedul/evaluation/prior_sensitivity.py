"""Effect of uncertain class priors on the predictions, without training again.

A network learns how likely each set is at x, whatever the stated priors are; priors only turn that into class
probabilities. So the class probabilities under other priors are those that explain the same set probabilities best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedul._utils.randomness import numpy_generator
from fedul.core import Federation, Matrix

ROWS = 200
"""Rows that are used; more would change a share by no more than a few points."""
DRAWS = 40
DRAWS_PER_SET = 4
STEPS = 150
MAX_SETS = 20
"""Sets that are varied one by one, the most uncertain ones."""
TINY = 1e-300
JEFFREYS = 0.5
"""Added to the counts behind the priors, so that a class that was not counted may still be present."""


@dataclass(frozen=True)
class UncertainSet:
    """A set with uncertain priors, and how much they alone may change a probability."""

    client: str
    set: str
    change: float


@dataclass(frozen=True)
class PriorSensitivity:
    """Change of predictions within the uncertainty of the priors, averaged over draws."""

    moved: float  # share of rows whose predicted class changes
    moved_high: float  # exceeded in one draw of forty
    change: float  # of a probability, averaged over classes
    accuracy_lost: float  # by predicting with wrong priors, if the probabilities are right
    sets: tuple[UncertainSet, ...]  # those that matter most first


def prior_sensitivity(
    federation: Federation, counts: Sequence[Matrix], probabilities: Matrix, *, seed: int = 0, sets: int = 10
) -> PriorSensitivity | None:
    """Return the effect of uncertain priors; None where all priors are certain.

    `counts` (M,) of each client are the numbers of cases that the priors of its sets were counted from, infinite where
    they are certain. `probabilities` (n, K), under the test prior, are those of rows of the target population.
    """
    if all(np.isinf(each).all() for each in counts):
        return None
    generator = numpy_generator(seed, "prior sensitivity")
    matrices = [client.priors for client in federation.clients]
    chosen = generator.permutation(len(probabilities))[:ROWS]
    current = _SetExplanation(federation, probabilities[chosen])
    moved, changes, lost = [], [], []
    for _ in range(DRAWS):
        changed = current.with_priors(draw_priors(matrices, counts, generator))
        moved.append(current.moved(changed))
        changes.append(current.change(changed))
        lost.append(current.accuracy_lost(changed))
    return PriorSensitivity(
        float(np.mean(moved)),
        float(np.quantile(moved, 0.975)),
        float(np.mean(changes)),
        float(np.mean(lost)),
        tuple(_rank_uncertain_sets(federation, counts, current, generator)[:sets]),
    )


def _rank_uncertain_sets(
    federation: Federation, counts: Sequence[Matrix], current: _SetExplanation, generator: np.random.Generator
) -> list[UncertainSet]:
    """Vary every uncertain set by itself, all others as stated; of very many, the most uncertain ones."""
    uncertain = [(each[m], c, m) for c, each in enumerate(counts) for m in np.flatnonzero(np.isfinite(each)).tolist()]
    ranked = []
    for _, c, m in sorted(uncertain)[:MAX_SETS]:
        client, single = federation.clients[c], np.full(len(counts[c]), np.inf)
        single[m] = counts[c][m]
        changes = []
        for _ in range(DRAWS_PER_SET):
            priors = [other.priors for other in federation.clients]
            priors[c] = _draw(client.priors, single, generator)
            changes.append(current.change(current.with_priors(priors)))
        ranked.append(UncertainSet(client.name, client.set_names[m], float(np.mean(changes))))
    return sorted(ranked, key=lambda each: -each.change)


def draw_priors(priors: Sequence[Matrix], counts: Sequence[Matrix], generator: np.random.Generator) -> list[Matrix]:
    """Draw plausible class priors of all clients."""
    return [_draw(matrix, known, generator) for matrix, known in zip(priors, counts, strict=True)]


def _draw(priors: Matrix, counts: Matrix, generator: np.random.Generator) -> Matrix:
    drawn = priors.copy()
    for m in np.flatnonzero(np.isfinite(counts)):
        drawn[m] = generator.dirichlet(counts[m] * priors[m] + JEFFREYS)
    return drawn


class _SetExplanation:
    """Class probabilities of some rows, as the explanation of how likely each set is there."""

    def __init__(self, federation: Federation, probabilities: Matrix) -> None:
        self.probabilities = probabilities
        self._prior = federation.test_prior
        self._clients = federation.clients
        self._sizes = [client.set_priors for client in federation.clients]
        ratios = probabilities / self._prior  # (n, K): u, with p(x | k) in proportion
        # Expected rows of each set at x: how likely a set is there, weighted by the size of the client.
        self._rows = [
            len(client.train) * sizes * (ratios @ client.priors.T)
            for client, sizes in zip(self._clients, self._sizes, strict=True)
        ]

    def with_priors(self, priors: Sequence[Matrix]) -> Matrix:
        """Return the class probabilities (n, K) that explain the same sets under other priors.

        The steps never lower the likelihood sum_m q_m log Q_m: a logarithm that is subtracted lies below its tangent.
        """
        ratios = self.probabilities / self._prior
        joints = [sizes[:, None] * matrix for sizes, matrix in zip(self._sizes, priors, strict=True)]  # (M, K)
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

    def moved(self, changed: Matrix) -> float:
        """Return the share of rows whose predicted class changes."""
        return float((changed.argmax(axis=1) != self.probabilities.argmax(axis=1)).mean())

    def change(self, changed: Matrix) -> float:
        """Return the mean change of a probability over rows and classes."""
        return float(np.abs(changed - self.probabilities).mean())

    def accuracy_lost(self, changed: Matrix) -> float:
        best = self.probabilities.max(axis=1)
        return float((best - self.probabilities[np.arange(len(changed)), changed.argmax(axis=1)]).mean())
