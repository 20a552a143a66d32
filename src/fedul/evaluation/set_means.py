"""Mean features and scatter of the rows of every set, with what is known of the errors of its class priors."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedul.core import Index, Matrix
from fedul.evaluation.out_of_fold import ClientPredictions, OutOfFoldPredictions
from fedul.evaluation.responsibilities import PredictionTable, flatten

LARGEST_VALUE = 5.0
"""Features are cut at this number of standard deviations: any function of a row may be compared, and outliers distort
normal approximations."""

LEAST_ROWS = 10.0
"""A feature needs this many rows that differ from its most common value (n / kurtosis, for an indicator)."""

PRIOR_DRAWS = 100
"""Draws from which the covariance of uncertain priors is computed."""

ROUNDING_UNITS = (0.01, 0.001, 0.0001, 0.00001, 0.000001)
MOST_UNITS = 5
"""Units by which the sum of rounded priors may differ from 1."""


@dataclass(frozen=True, eq=False)
class SetMeans:
    """The means of all sets that have rows, ordered by client.

    Parameters
    ----------
    priors : ndarray of shape (S, K)
        Class priors.
    counts : ndarray of shape (S,)
        Rows.
    client, number : ndarray of shape (S,)
        Client of each set, and its number among all sets of the federation.
    means : ndarray of shape (S, J)
        Mean features.
    scatters : ndarray of shape (S, J, J)
        Sums of squares and products of features around the mean of their set.
    sampling : ndarray of shape (S,)
        Variance of the class shares of the rows around the priors, in multinomial units.
    errors : ndarray of shape (S, K, K)
        Covariance of the errors of the priors themselves.
    features : ndarray of shape (J,)
        Which of the given features these are: constant ones are left out.
    overlaps : list
        Sets of a client that share rows, and the correlation of their means.
    """

    priors: Matrix
    counts: Matrix
    client: Index
    number: Index
    means: Matrix
    scatters: Matrix
    sampling: Matrix
    errors: Matrix
    features: Index
    overlaps: list[tuple[Index, Matrix]]

    @property
    def within_rows(self) -> float:
        """Degrees of freedom of the scatter within sets."""
        return float((self.counts - 1).sum())

    def without(self, dropped: Index) -> SetMeans:
        """Return the same without some sets, given by their place."""
        rest = np.setdiff1d(np.arange(len(self.counts)), dropped)
        place = np.full(len(self.counts), -1)
        place[rest] = np.arange(len(rest))
        overlaps = []
        for sets, correlation in self.overlaps:
            some = np.flatnonzero(place[sets] >= 0)
            if len(some):
                overlaps.append((place[sets[some]], correlation[np.ix_(some, some)]))
        names = ("priors", "counts", "client", "number", "means", "scatters", "sampling", "errors")
        return replace(self, **{name: getattr(self, name)[rest] for name in names}, overlaps=overlaps)


def summarize_sets(predictions: OutOfFoldPredictions, *, seed: int = 0) -> SetMeans | None:
    """Return the means of all sets; None if rows have no features that vary, or sets have one row each."""
    table, priors = flatten(predictions)
    values, features = _usable_features(table)
    active = np.flatnonzero(table.counts > 0)
    counts = table.counts[active]
    if not len(features) or (counts - 1).sum() < LEAST_ROWS:
        return None
    means = table.over_sets(values)[active] / counts[:, None]
    ends = np.cumsum(counts).astype(np.int64)[:-1]
    rows_of_sets = zip(np.split(values, ends), means, strict=True)
    sampling, errors = _prior_errors(predictions, seed)
    return SetMeans(
        priors=priors[active],
        counts=counts,
        client=table.client[active],
        number=active,
        means=means,
        scatters=np.stack([(rows - mean).T @ (rows - mean) for rows, mean in rows_of_sets]),
        sampling=sampling[active],
        errors=errors[active],
        features=features,
        overlaps=_find_overlaps(table, active),
    )


def _usable_features(table: PredictionTable) -> tuple[Matrix, Index]:
    """Return the features that vary, in standard units without outliers, and which ones these are."""
    values = table.features if table.features.shape[1] else np.exp(table.log_probabilities)
    deviations = values.std(axis=0)
    features = np.flatnonzero(deviations > 1e-9 * np.maximum(np.abs(values).max(axis=0, initial=0), 1e-300))
    values = (values[:, features] - values[:, features].mean(axis=0)) / deviations[features]
    common = np.square(np.square(values)).mean(axis=0) * LEAST_ROWS <= len(values)
    return np.clip(values[:, common], -LARGEST_VALUE, LARGEST_VALUE), features[common]


def _prior_errors(predictions: OutOfFoldPredictions, seed: int) -> tuple[Matrix, Matrix]:
    """Return s of every set (S,), and the covariance of the errors of its priors (S, K, K)."""
    sampling = np.concatenate([np.full(len(client.priors), client.share_variance) for client in predictions.clients])
    errors = np.concatenate([_rounding_errors(client) for client in predictions.clients])
    if predictions.draw_priors is not None:
        generator = np.random.default_rng(seed)
        drawn = np.stack([np.concatenate(predictions.draw_priors(generator)) for _ in range(PRIOR_DRAWS)])
        drawn -= drawn.mean(axis=0)
        errors += np.einsum("bmk,bml->mkl", drawn, drawn, optimize=True) / (PRIOR_DRAWS - 1)
    return sampling, errors


def _rounding_errors(client: ClientPredictions) -> Matrix:
    """Return the covariance (M, K, K) of uniform errors of the priors between 0 and 1, which sum to 0 in a set."""
    uncertain = ((client.priors > 0) & (client.priors < 1)).astype(np.float64)
    total = np.maximum(uncertain.sum(axis=1), 2)[:, None, None]
    both = uncertain[:, :, None] * uncertain[:, None, :]
    equal = uncertain[:, :, None] * np.eye(client.priors.shape[1])
    errors: Matrix = rounding_error(client) ** 2 / 3 * (total * equal - both) / (total - 1)
    return errors


def rounding_error(client: ClientPredictions) -> float:
    """Return the largest rounding error of a client's priors, half a unit.

    Where it is not declared and the priors are those of a population, it follows from the numbers: rounding to whole
    percents is possible if all are whole percents, and allowing for it costs little if they are exact.
    """
    if client.rounding or not client.share_variance:
        return client.rounding
    return next((unit / 2 for unit in ROUNDING_UNITS if _are_rounded(client.priors, unit)), 0.0)


def _are_rounded(priors: Matrix, unit: float) -> bool:
    """Return whether all priors are multiples of a unit, or were before they were divided by their sum."""
    totals = 1 + unit * np.arange(-MOST_UNITS, MOST_UNITS + 1)
    numbers = priors[:, :, None] * totals / unit  # (M, K, T)
    return bool((np.abs(numbers - numbers.round()).max(axis=1) < 1e-6).any(axis=1).all())


def _find_overlaps(table: PredictionTable, active: Index) -> list[tuple[Index, Matrix]]:
    """Return the places of the sets of a client that have rows in common, with the correlation of their means."""
    if len(np.unique(table.rows)) == len(table.rows):
        return []
    result = []
    bounds = np.searchsorted(table.sets, np.arange(len(table.counts) + 1))
    for client in np.unique(table.client[active]):
        places = np.flatnonzero(table.client[active] == client)
        sets = active[places]
        part = slice(bounds[sets[0]], bounds[sets[-1] + 1])
        distinct, row = np.unique(table.rows[part], return_inverse=True)
        contains = np.zeros((len(distinct), len(places)), np.float32)
        contains[row, np.searchsorted(sets, table.sets[part])] = 1
        common = (contains.T @ contains).astype(np.float64)
        size = np.sqrt(np.diag(common))
        result.append((places, common / np.outer(size, size)))
    return result
