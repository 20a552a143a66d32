"""Covariance of the mean of every set if the sets are the mixtures that their priors state.

If rows of a class look alike everywhere, the mean of set m has the expectation Pi_m mu. With n rows its covariance is

    W_m / n + s B_m / n + mu^T R_m mu.

W_m is the scatter within classes and B_m = mu^T (diag(Pi_m) - Pi_m Pi_m^T) mu that between classes. s is the variance
of the class shares of the rows around the priors, in multinomial units: 1 for priors of a population, 0 for class
counts of exactly these rows. R_m is the covariance of errors of the priors, from rounding or from few cases behind
them. W_m comes from the scatter of rows around their set's mean, which has the expectation (n - 1) W_m + (n - s) B_m.
So neither predicted classes nor the fit of the sets to each other affect the noise that the fit is compared with.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedul.core import RANK_TOLERANCE, Matrix
from fedul.evaluation.set_means import SetMeans

POOLED_ROWS = 2.0
"""Rows per feature that the pooled scatter counts beside those of a set. The eigenvalues of a scatter of few rows
spread widely, and so would the draws."""

VARIANTS = 25
MAX_NUMBERS = 20_000_000
"""Plausible covariances of set means: their number, and the maximum of all their elements."""


@dataclass(frozen=True, eq=False)
class SetNoise:
    """Noise of the means of sets, in units of the standard deviations within classes.

    Parameters
    ----------
    sets : SetMeans
        The sets.
    deviations : ndarray of shape (J,)
        Standard deviation of each feature within classes.
    roots : ndarray of shape (R, S, J, J)
        Square roots of n times the covariance of the means; R plausible ones, the best first.
    weights : ndarray of shape (S,)
        Weight of each set in a fit: n over the variance that is expected of a row, the mean over features. The scatter
        of the set itself does not enter: a set whose rows happen to be similar would count too much.
    """

    sets: SetMeans
    deviations: Matrix
    roots: Matrix
    weights: Matrix

    @classmethod
    def of(cls, sets: SetMeans, generator: np.random.Generator) -> SetNoise:
        """Estimate the noise."""
        covariances, within, expected = _plausible_covariances(sets, generator)
        total = np.diag(sets.scatters.sum(axis=0)) / sets.within_rows
        deviations = np.sqrt(np.maximum(np.diag(within), 1e-3 * total + 1e-12))
        variances = np.maximum(expected / deviations**2, 1e-3).mean(axis=1)
        return cls(sets, deviations, _root(covariances / np.outer(deviations, deviations)), sets.counts / variances)

    @property
    def variances(self) -> Matrix:
        """Return n times the variance of each mean (S, J)."""
        variances: Matrix = np.square(self.roots[0]).sum(axis=2)
        return variances

    def draw(self, draws: int, generator: np.random.Generator) -> Matrix:
        """Return random means (S, J, B) minus their expectation.

        The scatter is an estimate with f degrees of freedom. As in an F test, each draw has another plausible scatter:
        the logarithm of f over a chi-square has about the variance 2 / f.
        """
        sets, size = self.sets.means.shape
        freedom = (self.sets.counts - 1)[:, None, None]  # (S, 1, 1)
        own, common = 2 * freedom / (freedom + POOLED_ROWS * size) ** 2, 2 / self.sets.within_rows
        logs = np.sqrt(own) * generator.standard_normal((sets, size, draws)) - own / 2
        logs += np.sqrt(common) * generator.standard_normal((1, size, draws)) + common / 2
        noise = generator.standard_normal((sets, size, draws))
        for places, correlation in self.sets.overlaps:
            noise[places] = np.tensordot(_root(correlation), noise[places], 1)
        for part, roots in zip(np.array_split(np.arange(draws), len(self.roots)), self.roots, strict=True):
            noise[:, :, part] = roots @ noise[:, :, part]
        noise *= np.exp(logs / 2) / np.sqrt(self.sets.counts)[:, None, None]
        return noise


def _plausible_covariances(sets: SetMeans, generator: np.random.Generator) -> tuple[Matrix, Matrix, Matrix]:
    """Return plausible covariances (R, S, J, J), the best first, with the scatter and variances of `_covariances`.

    Where priors are exact, or wrong by rounding, the covariances depend on mu, which is an estimate. Then there are
    more than one. mu depends on the covariances in turn, so there are two passes.
    """
    noise, weights = sets.scatters.sum(axis=0) / (sets.counts - 1).sum(), sets.counts
    for _ in range(2):
        weighted = sets.priors.T * weights
        gain = np.linalg.pinv(weighted @ sets.priors, rcond=RANK_TOLERANCE, hermitian=True) @ weighted  # (K, S)
        mu, bias = gain @ sets.means, (gain / sets.counts) @ gain.T
        best, within, expected = _covariances(sets, mu, bias, noise)
        weights = sets.counts / np.maximum(expected, 1e-6).sum(axis=1)
        noise = np.tensordot(weights / weights.sum(), best, 1)
    if (sets.sampling == 1).all() and not sets.errors.any():
        return best[None], within, expected
    variants = int(np.clip(MAX_NUMBERS // best.size, 1, VARIANTS))
    left, right = _root(bias), _root(noise)
    others = [
        _covariances(sets, mu + left @ generator.standard_normal(mu.shape) @ right.T, 2 * bias, noise)[0]
        for _ in range(variants - 1)
    ]
    return np.stack([best, *others]), within, expected


def _covariances(sets: SetMeans, mu: Matrix, bias: Matrix, noise: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    """Return n times the covariance of each set's mean (S, J, J), the scatter within classes (J, J), and variances.

    The variances (S, J) are n times those of the means if all sets have the same scatter within classes.

    Errors of mu make classes look farther apart than they are; `bias` (K, K) times `noise` is their covariance.
    """

    def between(spread: Matrix) -> Matrix:
        found: Matrix = np.einsum("kj,mkl,lh->mjh", mu, spread, mu, optimize=True)
        found -= np.einsum("mkl,kl->m", spread, bias)[:, None, None] * noise
        return found

    size, freedom, sampling = (each[:, None, None] for each in (sets.counts, sets.counts - 1, sets.sampling))
    diagonal = sets.priors[:, :, None] * np.eye(sets.priors.shape[1])
    classes = between(diagonal - sets.priors[:, :, None] * sets.priors[:, None, :])
    own = sets.scatters - (size - sampling) * classes
    within = own.sum(axis=0) / freedom.sum()
    pooled = POOLED_ROWS * len(within)
    covariances = (own + pooled * within) / (freedom + pooled)
    others = sampling * classes + size * between(sets.errors)
    return covariances + others, within, np.diagonal(within + others, axis1=1, axis2=2)


def _root(covariances: Matrix) -> Matrix:
    """Return square roots of matrices (..., J, J), without negative eigenvalues."""
    values, vectors = np.linalg.eigh(covariances)
    root: Matrix = vectors * np.sqrt(np.maximum(values, 0))[..., None, :]
    return root
