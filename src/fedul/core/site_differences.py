"""Test whether sites differ in their features beyond what their class priors explain.

If rows of a class look alike at all sites, the mean of a feature in a set is the same linear function of the set's
class priors everywhere. Per feature, weighted least squares fits this function with and without an intercept per
client, and an F test compares the two fits. A set counts by its size over its within-set variance. Differences between
sets of one client that the priors do not explain enter the residual variance, so that sets which merely vary are not
taken for sites that differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedul.core.inputs import Index
from fedul.core.priors import RANK_TOLERANCE, Matrix
from fedul.core.site_adjustment import Columns, SetMoments, is_determined
from fedul.core.unlabeled_sets import UnlabeledSets

PRIOR_ROWS = 10.0
"""Rows that the pooled within-set variance counts beside those of a set."""

BISECTIONS = 20
"""Steps in which the variance between sets is found."""


@dataclass(frozen=True)
class SiteDifferences:
    """Result of the test.

    Parameters
    ----------
    p_value : float or None
        Smallest p-value of all features, corrected for their number (Bonferroni); None if the test cannot be made.
    place : int or None
        Place of the feature with the smallest p-value.
    undetermined : tuple of str
        Clients whose sets do not determine what their features would be at the test prior: differences between such
        clients may be differences of their class mix.
    """

    p_value: float | None
    place: int | None = None
    undetermined: tuple[str, ...] = ()


def compare_sites(clients: Sequence[UnlabeledSets], test_prior: Matrix, columns: Columns) -> SiteDifferences:
    """Test whether the features of clients differ beyond their class priors.

    Parameters
    ----------
    clients : sequence of UnlabeledSets
        The clients; the test needs the set means of all of them.
    test_prior : ndarray of shape (K,)
        The class mix that features are adjusted to.
    columns : mapping of int to int or None
        The inputs to compare, each with its indicator of missing values.
    """
    parts = [SetMoments.of(client, columns) for client in clients]
    undetermined = tuple(client.name for client in clients if not is_determined(client, test_prior))
    counts, means, variances = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("counts", "means", "variances")
    )
    priors = np.concatenate([client.priors for client in clients])
    codes: Index = np.repeat(np.arange(len(clients)), [len(client.priors) for client in clients])
    p_values = {
        place: p
        for j, place in enumerate(columns)
        if (p := _p_value(counts[:, j], means[:, j], variances[:, j], priors, codes)) is not None
    }
    if not p_values:
        return SiteDifferences(None, None, undetermined)
    place = min(p_values, key=p_values.__getitem__)
    return SiteDifferences(min(1.0, p_values[place] * len(p_values)), place, undetermined)


def _p_value(counts: Matrix, means: Matrix, variances: Matrix, priors: Matrix, codes: Index) -> float | None:
    """Return the p-value of one feature; None if sets are too few, or priors and clients cannot be told apart."""
    used = counts > 0
    counts, means, variances, priors = (each[used] for each in (counts, means, variances, priors))
    freedom = counts - 1
    if not freedom.sum() or not (pooled := (counts * variances).sum() / freedom.sum()):
        return None
    # Variances of small sets are uncertain, so they are drawn towards the pooled one.
    within = (counts * variances + PRIOR_ROWS * pooled) / (freedom + PRIOR_ROWS)
    codes = np.unique(codes[used], return_inverse=True)[1]
    spread = _set_spread(within / counts, means, priors, codes)
    weights = 1 / (within / counts + spread)
    residual, rank = _fit(means, priors, weights)
    own_residual, own_rank = _fit_with_intercepts(means, priors, codes, weights)
    parameters = own_rank + int(codes.max()) + 1
    more, left = parameters - rank, len(means) - parameters
    if more < 1 or left < 1:
        return None
    from scipy.special import fdtrc  # as scipy.stats.f, which takes half a second to import

    # A residual variance below that of sampling is chance, or comes from priors that are counts of these rows.
    scale = max(1.0, own_residual / left)
    return float(fdtrc(more, left, max(0.0, residual - own_residual) / more / scale))


def _set_spread(sampling: Matrix, means: Matrix, priors: Matrix, codes: Index) -> float:
    """Return the variance of set means beyond sampling, within clients (Paule and Mandel, 1982).

    It is the variance at which the residuals of the fit are as large as expected; 0 if they are not larger.
    """

    def excess(spread: float) -> float:
        residual, rank = _fit_with_intercepts(means, priors, codes, 1 / (sampling + spread))
        return residual - (len(means) - rank - int(codes.max()) - 1)

    low, high = 0.0, float(means.var())
    if excess(low) <= 0 or excess(high) >= 0:
        return 0.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return high


def _fit_with_intercepts(means: Matrix, priors: Matrix, codes: Index, weights: Matrix) -> tuple[float, int]:
    """Return what `_fit` does with an intercept per client: what remains without client means is fitted."""
    total = np.bincount(codes, weights)
    centred = [c - (np.bincount(codes, weights * c) / total)[codes] for c in (means, *priors.T)]
    return _fit(centred[0], np.stack(centred[1:], axis=1), weights)


def _fit(values: Matrix, regressors: Matrix, weights: Matrix) -> tuple[float, int]:
    """Return the weighted sum of squared residuals, and the rank of the regressors."""
    roots = np.sqrt(weights)
    design, target = regressors * roots[:, None], values * roots
    solution, _, rank, _ = np.linalg.lstsq(design / roots.max(), target, rcond=RANK_TOLERANCE)
    return float(((target - design @ solution / roots.max()) ** 2).sum()), int(rank)
