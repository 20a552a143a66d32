"""How good a classifier is, from the class priors of sets alone: no label is used.

Two estimates of the confusion matrix C (true class k, predicted class j) are put together, each counting by what it is
worth. `solved`: the predicted shares of set m are Pi_m C; this assumes nothing of the classifier's probabilities, is
unbiased, and wide where sets are alike. `soft`: rows counted by their responsibilities; this is narrow, and as good as
the probabilities are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedul.evaluation.judged import Judged
from fedul.evaluation.responsibilities import Stacked, Temperature, confusion, responsibilities, stacked, temperature
from fedul.evaluation.solved import covariance_of_diagonal, solved
from fedul.priors import Matrix, validate_mix

# Chosen on digits federations of seeds 1000 to 1014, with 0 to 19 looked at; OTHERS on 100 to 199.
# docs/results/label-free.md reports on 200 to 299.
SOFT = 0.12
"""Standard error of the soft estimate, as a share of the error it finds.

It is off by up to twice as much, but to the cautious side: it finds too many errors.
"""

SOFT_CLASS = 0.3
"""The same for a single cell of the confusion matrix."""

FOLDS = 0.12
"""Standard error, as a share of the error, of judging the delivered model by those of the folds.

A set whose class counts are exact for all its rows is off a little for the rows of a fold, and against them.
"""

OTHERS = 0.03
"""How far the error on a population may be from that on the clients' own rows: one standard error, in sqrt(p (1 - p)).

Of digits, other writers' are misread by 1 to 1.5 in a hundred more often. Rows alone cannot tell of that.
"""

OTHERS_CLASS = 0.14
"""The same for the error on a single class: the classes differ more than their mean."""

LEVEL = 1.959964  # standard errors on either side of a 95 % interval
DRAWS = 30


@dataclass(frozen=True)
class Figure:
    """An estimate, with a 95 % interval for the population and one for rows just like the clients' own."""

    value: float
    low: float
    high: float
    low_alike: float
    high_alike: float
    standard_error: float = math.nan  # of the value, for rows like the clients' own

    def at_least(self, low: float, low_alike: float) -> Figure:
        """The same, known from elsewhere not to be lower; the estimate itself stays in its interval."""
        low, low_alike = min(low, self.value), min(low_alike, self.value)
        return replace(self, low=max(self.low, low), low_alike=max(self.low_alike, low_alike))

    def at_most(self, high: float, high_alike: float) -> Figure:
        """The same, known from elsewhere not to be higher."""
        high, high_alike = max(high, self.value), max(high_alike, self.value)
        return replace(self, high=min(self.high, high), high_alike=min(self.high_alike, high_alike))


@dataclass(frozen=True, eq=False)
class Estimate:
    """What is known of a classifier without labels."""

    classes: Sequence[str]
    test_prior: Matrix  # (K,)
    rows: int  # different rows that were judged
    rows_of_class: Matrix  # (K,): how many of them are of each class, by the priors
    soft: Matrix  # (K, K)
    soft_error: Matrix  # (K, K): standard errors
    solved: Matrix  # (K, K)
    solved_error: Matrix  # (K, K)
    right_covariance: Matrix  # (K, K): of the diagonal of `solved`
    right_shift: Matrix  # (K,): what a temperature one standard error higher takes from the diagonal of `soft`
    prior_covariance: Matrix  # (K, K): what uncertain priors do to the diagonal
    calibration: Sequence[dict[str, Any]]  # a line a class of every set: stated and predicted share

    @property
    def accuracy(self) -> Figure:
        """At the test prior."""
        return self._accuracy(self.test_prior)

    def at(self, prior: ArrayLike) -> Figure:
        """The accuracy of the same predictions in a population with another class mix."""
        return self._accuracy(validate_mix(prior, tuple(self.classes)))

    def _accuracy(self, prior: Matrix) -> Figure:
        soft, solved = prior @ np.diag(self.soft), prior @ np.diag(self.solved)
        model = np.hypot(SOFT * (1 - soft), prior @ self.right_shift)
        value, variance = _together(soft, model**2, solved, prior @ self.right_covariance @ prior)
        variance += (FOLDS * (1 - value)) ** 2
        drawn = (value * (1 - value)).clip(0.25 / self.rows) / self.rows  # the rows are a sample of the population
        return figure(value, variance + drawn + prior @ self.prior_covariance @ prior, self.rows)

    @property
    def width_with_labels(self) -> float:
        """Width of the interval that labels of as many rows would give."""
        value = self.accuracy.value
        return float(2 * LEVEL * np.sqrt(value * (1 - value) / self.rows))

    @property
    def cells(self) -> list[list[Figure]]:
        """The confusion matrix: row k tells what rows of class k are predicted as."""
        values, variances = _together(self.soft, self.soft_error**2, self.solved, self.solved_error**2)
        right = np.diag(values).clip(0, 1)
        beside = values.clip(0) * (1 - np.eye(len(values)))
        total = beside.sum(axis=1)
        values = beside * ((1 - right) / np.where(total > 0, total, 1))[:, None]
        values[np.diag_indices_from(values)] = np.where(total > 0, right, 1.0)
        of_class = np.maximum(self.rows_of_class, 1.0)
        variances = variances + values * (1 - values) / of_class[:, None] + np.diag(np.diag(self.prior_covariance))
        found = [
            [_figure(float(v), float(s), OTHERS_CLASS, 0.5 / max(count, 1.0)) for v, s in zip(*row, strict=True)]
            for count, *row in zip(of_class, values, variances, strict=True)
        ]
        for k, share in enumerate(self.test_prior):  # no class can have more mistakes than there are
            found[k][k] = found[k][k].at_least(*(1 - wrong / share for wrong in self._mistakes))
            for j in range(len(found)):
                if j != k:
                    found[k][j] = found[k][j].at_most(*(wrong / share for wrong in self._mistakes))
        return found

    @property
    def _mistakes(self) -> tuple[float, float]:
        """The largest share of mistakes in the population, and among rows just like the clients' own."""
        return 1 - self.accuracy.low, 1 - self.accuracy.low_alike

    @property
    def recall(self) -> list[Figure]:
        """Of each class: the share of its rows that is found."""
        return [row[k] for k, row in enumerate(self.cells)]

    @property
    def precision(self) -> list[Figure]:
        """Of each class, at the test prior: the share of rows predicted as it that are of it."""
        cells = self.cells
        values = np.array([[cell.value for cell in row] for row in cells])
        errors = np.array([[(cell.high_alike - cell.low_alike) / (2 * LEVEL) for cell in row] for row in cells])
        joint = self.test_prior[:, None] * values  # (K, K)
        predicted = joint.sum(axis=0)
        found = []
        for j, share in enumerate(predicted):
            if share < 1e-9:  # never predicted: nothing is known
                found.append(Figure(0.0, 0.0, 1.0, 0.0, 1.0))
                continue
            slope = -self.test_prior * joint[j, j] / share**2
            slope[j] = self.test_prior[j] * (share - joint[j, j]) / share**2
            variance = float(np.square(slope * errors[:, j]).sum())
            own = _figure(joint[j, j] / share, variance, OTHERS_CLASS, 0.5 / self.rows)
            found.append(own.at_least(*(joint[j, j] / (joint[j, j] + wrong) for wrong in self._mistakes)))
        return found

    def plain(self) -> dict[str, Any]:
        """All figures, for JSON."""
        accuracy, cells = self.accuracy, self.cells
        return {
            "estimated_accuracy": accuracy.value,
            "interval": [accuracy.low, accuracy.high],
            "interval_alike": [accuracy.low_alike, accuracy.high_alike],
            "accuracy": None,
            "width_with_labels": self.width_with_labels,
            "rows": self.rows,
            "classes": list(self.classes),
            "confusion": [[cell.value for cell in row] for row in cells],
            "confusion_low": [[cell.low for cell in row] for row in cells],
            "confusion_high": [[cell.high for cell in row] for row in cells],
            "recall": [_plain(name, figure) for name, figure in zip(self.classes, self.recall, strict=True)],
            "precision": [_plain(name, figure) for name, figure in zip(self.classes, self.precision, strict=True)],
            "calibration": [dict(line) for line in self.calibration],
        }


def estimate(judged: Judged, *, seed: int = 0) -> Estimate:
    """The confusion matrix and all that follows from it, from rows that were judged out of fold."""
    table, priors = stacked(judged)
    heat = temperature(table, priors)
    shares = responsibilities(table, priors, heat.best)
    soft = confusion(table, shares)
    found, found_error, gains = solved(table, priors, soft)
    ends = [np.diag(confusion(table, responsibilities(table, priors, t))) for t in (heat.low, heat.high)]
    shift = (ends[0] - ends[1]) / 2
    covariance, repeats = covariance_of_diagonal(table, priors, soft, shares, gains)
    return Estimate(
        classes=tuple(judged.classes),
        test_prior=judged.test_prior,
        rows=(rows := len(np.unique(table.rows))),
        rows_of_class=table.counts @ priors * (rows / table.counts.sum()),
        soft=soft,
        soft_error=_soft_error(soft, shift),
        solved=found,
        solved_error=found_error * repeats,
        right_covariance=covariance,
        right_shift=shift,
        prior_covariance=_prior_covariance(judged, table, heat, seed),
        calibration=_calibration(judged, table, priors),
    )


def _soft_error(soft: Matrix, shift: Matrix) -> Matrix:
    error = SOFT_CLASS * soft
    np.fill_diagonal(error, np.hypot(SOFT_CLASS * (1 - np.diag(soft)), shift))
    return error


def _prior_covariance(judged: Judged, table: Stacked, heat: Temperature, seed: int) -> Matrix:
    """What priors that are known only roughly add: the spread of the answer over draws of them."""
    if judged.draw_priors is None:
        return np.zeros((table.classes, table.classes))
    generator, found = np.random.default_rng(seed), []
    for _ in range(DRAWS):
        priors = np.concatenate(judged.draw_priors(generator))
        soft = confusion(table, responsibilities(table, priors, heat.best))
        direct, error, _ = solved(table, priors, soft)
        value, _ = _together(np.diag(soft), SOFT**2 * (1 - np.diag(soft)) ** 2, np.diag(direct), np.diag(error) ** 2)
        found.append(value)
    spread: Matrix = np.cov(np.array(found), rowvar=False)
    return spread


def _calibration(judged: Judged, table: Stacked, priors: Matrix) -> list[dict[str, Any]]:
    """For every set: the shares that were stated, and the mean of the classifier's probabilities for that mix."""
    with np.errstate(divide="ignore"):
        logs = table.log_probabilities + np.log(priors / table.test_prior)[table.sets]
    shares = np.exp(logs - logs.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    counts = np.maximum(table.counts, 1)[:, None]
    mean, square = table.over_sets(shares) / counts, table.over_sets(shares**2) / counts
    explained = np.zeros_like(mean)  # by the classes of the rows, which are not by chance where their counts are exact
    for k in range(table.classes):
        product = table.over_sets(shares * shares[:, [k]]) / counts
        explained += product**2 / np.maximum(mean[:, [k]], 1e-12)
    variance = square - np.where(table.exact[:, None], explained, mean**2)
    error = np.sqrt(np.maximum(variance, 0) / counts)
    names = [(client.name, name) for client in judged.clients for name in client.set_names]
    return [
        {
            "client": client,
            "set": name,
            "class": judged.classes[k],
            "stated": float(priors[m, k]),
            "predicted": float(mean[m, k]),
            "standard_error": float(error[m, k]),
        }
        for m, (client, name) in enumerate(names)
        for k in range(table.classes)
        if table.counts[m]
    ]


def _together(first: Any, first_variance: Any, second: Any, second_variance: Any) -> tuple[Any, Any]:
    """Two estimates of one thing, each weighed by the other's variance."""
    first_variance, second_variance = np.maximum(first_variance, 1e-12), np.maximum(second_variance, 1e-12)
    share = first_variance / (first_variance + second_variance)
    return first + share * (second - first), share * second_variance


def figure(accuracy: float, variance: float, rows: int) -> Figure:
    """An accuracy that so many rows were judged for, with its intervals."""
    return _figure(accuracy, variance, OTHERS, 0.5 / rows)


def _figure(value: float, variance: float, others: float, least: float) -> Figure:
    """An estimate of a share, whose intervals are made on the log-odds: they stay in 0..1 and lean to the middle."""
    value = float(np.clip(value, 0, 1))
    inside = float(np.clip(value, min(least, 0.5), max(1 - least, 0.5)))  # log-odds of 0 and 1 are infinite
    low_alike, high_alike = interval(inside, variance)
    low, high = interval(inside, variance + others**2 * inside * (1 - inside))
    ends = min(low, value), max(high, value), min(low_alike, value), max(high_alike, value)
    return Figure(value, *ends, standard_error=math.sqrt(variance))


def interval(value: float, variance: float) -> tuple[float, float]:
    """95 % of where a share may be, on the log-odds."""
    middle = np.log(value / (1 - value))
    reach = LEVEL * np.sqrt(variance) / (value * (1 - value))
    low, high = 1 / (1 + np.exp(-np.clip([middle - reach, middle + reach], -50, 50)))
    return float(low), float(high)


def _plain(name: str, figure: Figure) -> dict[str, Any]:
    return {"class": name, "value": figure.value, "low": figure.low, "high": figure.high}
