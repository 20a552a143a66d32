"""Lack of fit of set means to mixtures, compared with random draws.

One mu (K, J) for all sets is fitted by weighted least squares. Several statistics of the residuals see different
violations: their sum of squares over all sets, what is left of it without one client or one set, and the difference
that one number per client and feature would explain. Each is compared with its values in the draws, and the smallest
p-value with the smallest p-values of the draws (Westfall and Young, 1993), so that there is one level for all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedul.core import RANK_TOLERANCE, Index, Matrix
from fedul.evaluation.set_means import SetMeans
from fedul.evaluation.set_noise import SetNoise

DRAWS = 800
MIN_DRAWS = 200
MAX_WORK = 8_000_000
"""Maximum of sets times features times draws: with many sets there are fewer draws, but at least MIN_DRAWS."""

BLOCK = 2_000_000
"""Numbers that are drawn at a time."""

MIN_ROWS = 20
"""A single set is compared with the others if it has this many rows: means of fewer rows are not normal."""

MIN_FREEDOM = 1e-6
"""A set or client is compared if the others leave more than this share of its weight to it."""

Statistics = dict[str, Matrix]


@dataclass(frozen=True, eq=False)
class LackOfFit:
    """The fit of all sets, its statistics, and those of the draws."""

    sets: SetMeans
    noise: SetNoise
    by_client: bool
    draws: int
    seed: int

    @classmethod
    def of(cls, sets: SetMeans, seed: int) -> LackOfFit | None:
        """Fit mu to the sets; None if they leave nothing to compare."""
        if len(sets.counts) <= _rank(sets.priors) or sets.within_rows < 1:
            return None
        draws = int(np.clip(MAX_WORK // sets.means.size, MIN_DRAWS, DRAWS))
        noise = SetNoise.of(sets, np.random.default_rng(seed))
        return cls(sets, noise, len(np.unique(sets.client)) > 1, draws, seed)

    @cached_property
    def means(self) -> Matrix:
        """Means of the sets (S, J), in standard deviations within classes."""
        means: Matrix = self.sets.means / self.noise.deviations
        return means

    @property
    def weights(self) -> Matrix:
        """Weight of each set (S,)."""
        return self.noise.weights

    @cached_property
    def normal(self) -> Matrix:
        """Matrix of the normal equations (K, K)."""
        normal: Matrix = (self.sets.priors.T * self.weights) @ self.sets.priors
        return normal

    @cached_property
    def inverse(self) -> Matrix:
        """Inverse of `normal`; in directions that the sets do not determine, 0."""
        return _inverse(self.normal)

    @cached_property
    def freedom(self) -> Matrix:
        """Share of each set that the fit leaves in its residual (S,)."""
        leverage = self.weights * np.einsum("mk,kl,ml->m", self.sets.priors, self.inverse, self.sets.priors)
        return np.where(1 - leverage > MIN_FREEDOM, 1 - leverage, 0)

    @cached_property
    def starts(self) -> Index:
        """Place of the first set of each client (C,)."""
        return np.unique(self.sets.client, return_index=True)[1]

    @cached_property
    def without_client(self) -> Matrix:
        """Inverses of the normal equations of all other clients (C, K, K)."""
        priors = self.sets.priors
        own = np.add.reduceat(self.weights[:, None, None] * priors[:, :, None] * priors[:, None, :], self.starts)
        return np.stack([_inverse(each) for each in self.normal - own])

    @cached_property
    def offset_weights(self) -> Matrix:
        """Weight of a number that is added to all sets of a client (C,); 0 where it cannot be told from classes."""
        own = np.add.reduceat(self.weights, self.starts)
        used = np.add.reduceat(self.weights[:, None] * self.sets.priors, self.starts)  # (C, K)
        left = own - np.einsum("ck,kl,cl->c", used, self.inverse, used)
        return np.where(left > MIN_FREEDOM * own, left, 0)

    @cached_property
    def whitening(self) -> Matrix:
        """Directions (J, G) in which rows of a set have unit variance, without those that have none.

        Not those of the noise itself: where priors are exact, it is known less well.
        """
        scatter = self.sets.scatters.sum(axis=0) / self.sets.within_rows
        scatter = scatter / np.outer(self.noise.deviations, self.noise.deviations)
        scale = np.sqrt(np.maximum(np.diag(scatter), 1e-12))
        values, vectors = np.linalg.eigh(scatter / np.outer(scale, scale))
        real = values > 1e-3 * values[-1]
        directions: Matrix = vectors[:, real] / np.sqrt(values[real]) / scale[:, None]
        return directions

    def residuals(self, means: Matrix) -> Matrix:
        """Return means (S, ...) minus their fit."""
        mu = self.inverse @ ((self.sets.priors.T * self.weights) @ means.reshape(len(means), -1))
        residuals: Matrix = means - (self.sets.priors @ mu).reshape(means.shape)
        return residuals

    def statistics(self, means: Matrix) -> Statistics:
        """Return all statistics of means (S, J, B), each of shape (B, number of comparisons)."""
        residuals, draws = self.residuals(means), means.shape[2]
        white = self.whitening.T @ residuals  # (S, G, B)
        squares = self.weights * np.square(white).sum(axis=1).T  # (B, S)
        result = {
            "all": squares.sum(axis=1, keepdims=True),
            "feature": np.tensordot(self.weights, np.square(residuals), 1).T,
            "set": squares / np.where(self.freedom > 0, self.freedom, np.inf),
        }
        if self.by_client:
            total = np.add.reduceat(squares, self.starts, axis=1)  # (B, C)
            for c, places in enumerate(np.split(np.arange(len(self.weights)), self.starts[1:])):
                lost = (self.sets.priors[places].T * self.weights[places]) @ white[places].reshape(len(places), -1)
                total[:, c] += ((self.without_client[c] @ lost) * lost).sum(axis=0).reshape(-1, draws).sum(axis=0)
            result["client"] = total
            result["offset"] = self.offsets(residuals).reshape(-1, draws).T
        return result

    def offsets(self, residuals: Matrix) -> Matrix:
        """Return the number that each client needs on top of its sets (C, ...), from residuals (S, ...)."""
        values = residuals.reshape(len(residuals), -1)
        sums = np.add.reduceat(self.weights[:, None] * values, self.starts)
        offsets = sums / np.where(self.offset_weights > 0, self.offset_weights, np.inf)[:, None]
        return offsets.reshape(len(self.starts), *residuals.shape[1:])

    @cached_property
    def observed(self) -> Statistics:
        """Statistics of the data, each of shape (1, number of comparisons)."""
        return self.statistics(self.means[:, :, None])

    @cached_property
    def drawn(self) -> Statistics:
        """Statistics of the draws."""
        generator = np.random.default_rng(self.seed)
        block = max(1, BLOCK // max(self.sets.means.size, 1))
        parts = [
            self.statistics(self.noise.draw(min(block, self.draws - done), generator))
            for done in range(0, self.draws, block)
        ]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    @cached_property
    def scores(self) -> Statistics:
        """Statistics of the data (first row) and of the draws, about standard normal where the assumption holds."""
        result = {}
        for name, drawn in self.drawn.items():
            both = np.concatenate([self.observed[name], drawn])
            if name == "offset":
                both = np.abs(both) / np.maximum(np.sqrt(np.square(drawn).mean(axis=0)), 1e-300)
            else:
                both = np.cbrt(both)  # the cube root of a chi-square is nearly normal (Wilson and Hilferty, 1931)
                both = (both - np.cbrt(drawn).mean(axis=0)) / np.maximum(np.cbrt(drawn).std(axis=0), 1e-300)
            result[name] = both
        small = (self.sets.counts < MIN_ROWS) | (self.freedom == 0)
        result["set"][:, small] = -np.inf
        if small.all():
            del result["set"]
        return result

    @cached_property
    def p_value(self) -> float:
        """P-value of the fit."""
        ranks = [_upper_ranks(each.max(axis=1)) for each in self.scores.values()]
        smallest = np.min(ranks, axis=0)
        return float((smallest <= smallest[0]).mean())

    def p_values(self, name: str) -> Matrix:
        """Return the p-values of all comparisons of one kind, corrected for their number."""
        scores = self.scores[name]
        largest = np.sort(scores[1:].max(axis=1))
        above = len(largest) - np.searchsorted(largest, scores[0], side="left")
        p_values: Matrix = (1 + above) / (1 + len(largest))
        return p_values


def _inverse(normal: Matrix) -> Matrix:
    inverse: Matrix = np.linalg.pinv(normal, rcond=RANK_TOLERANCE, hermitian=True).astype(np.float64)
    return inverse


def _rank(priors: Matrix) -> int:
    values = np.linalg.svd(priors, compute_uv=False)
    return int((values > RANK_TOLERANCE * values[0]).sum())


def _upper_ranks(values: Matrix) -> Matrix:
    """Return the share of values that are at least as large as each."""
    ranks: Matrix = (len(values) - np.searchsorted(np.sort(values), values, side="left")) / len(values)
    return ranks
