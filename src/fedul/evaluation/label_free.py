"""Accuracy of a classifier from the class priors of sets, without labels.

Two estimates of the confusion matrix C (true class k, predicted class j) are combined by inverse variance. `solved`
solves ``predicted shares of set m = Pi_m C``: it does not rely on the predicted probabilities, is unbiased, and has a
large variance where sets are similar. `soft` counts rows by their responsibilities: it has a small variance, but is
only as good as the probabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedul.core import Z_95, Matrix, validate_class_mix
from fedul.evaluation.assumption import AssumptionTest
from fedul.evaluation.document import ClassEstimate, Evaluation, SetCalibration
from fedul.evaluation.intervals import POPULATION_CLASS, IntervalEstimate, interval_estimate, share_estimate
from fedul.evaluation.out_of_fold import OutOfFoldPredictions
from fedul.evaluation.responsibilities import (
    PredictionTable,
    Temperature,
    count_confusion,
    estimate_responsibilities,
    estimate_temperature,
    flatten,
)
from fedul.evaluation.share_equations import covariance_of_diagonal, solve_confusion

# Chosen on digits federations of seeds 1000 to 1014, after inspection of 0 to 19.
# docs/results/label-free.md reports on 200 to 299.
SOFT_ERROR = 0.12
"""Standard error of the soft estimate, as a share of the estimated error.

The actual deviation is up to twice as large, but on the safe side: the estimate finds too many errors.
"""

SOFT_CELL_ERROR = 0.3
"""Standard error of a single cell of the soft confusion matrix, as a share of the cell or of the error."""

FOLD_ERROR = 0.12
"""Standard error, as a share of the error, because the models of the folds are evaluated, not the delivered one.

Class counts that are exact for all rows of a set are slightly wrong for the rows of a fold.
"""

DRAWS = 30
"""Draws of uncertain priors."""


@dataclass(frozen=True, eq=False)
class AccuracyEstimate:
    """Confusion matrix of a classifier, estimated without labels, and the metrics derived from it."""

    classes: Sequence[str]
    test_prior: Matrix  # (K,)
    rows: int  # distinct rows that were evaluated
    rows_of_class: Matrix  # (K,): expected rows of each class, from the priors
    soft: Matrix  # (K, K)
    soft_error: Matrix  # (K, K): standard errors
    solved: Matrix  # (K, K)
    solved_error: Matrix  # (K, K)
    diagonal_covariance: Matrix  # (K, K): of the diagonal of `solved`
    diagonal_shift: Matrix  # (K,): change of the diagonal of `soft` for a temperature one standard error higher
    prior_covariance: Matrix  # (K, K): of the diagonal, from uncertain priors
    calibration: tuple[SetCalibration, ...]

    @property
    def accuracy(self) -> IntervalEstimate:
        """Accuracy at the test prior."""
        return self._accuracy(self.test_prior)

    def at(self, prior: ArrayLike) -> IntervalEstimate:
        """Return the accuracy of the same predictions in a population with another class mix."""
        return self._accuracy(validate_class_mix(prior, tuple(self.classes)))

    def _accuracy(self, prior: Matrix) -> IntervalEstimate:
        soft, solved = prior @ np.diag(self.soft), prior @ np.diag(self.solved)
        model = np.hypot(SOFT_ERROR * (1 - soft), prior @ self.diagonal_shift)
        value, variance = _combine(soft, model**2, solved, prior @ self.diagonal_covariance @ prior)
        variance += (FOLD_ERROR * (1 - value)) ** 2
        drawn = (value * (1 - value)).clip(0.25 / self.rows) / self.rows  # the rows are a sample of the population
        return interval_estimate(value, variance + drawn + prior @ self.prior_covariance @ prior, self.rows)

    @property
    def width_with_labels(self) -> float:
        """Width of the interval if the same number of rows had labels."""
        value = self.accuracy.value
        return float(2 * Z_95 * np.sqrt(value * (1 - value) / self.rows))

    @property
    def cells(self) -> list[list[IntervalEstimate]]:
        """The confusion matrix: true class by predicted class."""
        values, variances = _combine(self.soft, self.soft_error**2, self.solved, self.solved_error**2)
        right = np.diag(values).clip(0, 1)
        wrong = values.clip(0) * (1 - np.eye(len(values)))
        total = wrong.sum(axis=1)
        values = wrong * ((1 - right) / np.where(total > 0, total, 1))[:, None]
        values[np.diag_indices_from(values)] = np.where(total > 0, right, 1.0)
        counts = np.maximum(self.rows_of_class, 1.0)
        variances = variances + values * (1 - values) / counts[:, None] + np.diag(np.diag(self.prior_covariance))
        cells = [
            [
                share_estimate(float(v), float(s), POPULATION_CLASS, 0.5 / max(count, 1.0))
                for v, s in zip(*row, strict=True)
            ]
            for count, *row in zip(counts, values, variances, strict=True)
        ]
        for k, share in enumerate(self.test_prior):  # no class can have more errors than there are in total
            cells[k][k] = cells[k][k].at_least(*(1 - error / share for error in self._highest_errors))
            for j in range(len(cells)):
                if j != k:
                    cells[k][j] = cells[k][j].at_most(*(error / share for error in self._highest_errors))
        return cells

    @property
    def _highest_errors(self) -> tuple[float, float]:
        """Upper ends of the intervals of the error: in the population, and among rows like those of the clients."""
        return 1 - self.accuracy.low, 1 - self.accuracy.clients_low

    @property
    def recall(self) -> list[IntervalEstimate]:
        """Recall of each class."""
        return [row[k] for k, row in enumerate(self.cells)]

    @property
    def precision(self) -> list[IntervalEstimate]:
        """Precision of each class at the test prior."""
        cells = self.cells
        values = np.array([[cell.value for cell in row] for row in cells])
        errors = np.array([[(cell.clients_high - cell.clients_low) / (2 * Z_95) for cell in row] for row in cells])
        joint = self.test_prior[:, None] * values  # (K, K)
        predicted = joint.sum(axis=0)
        estimates = []
        for j, share in enumerate(predicted):
            if share < 1e-9:  # never predicted: nothing is known
                estimates.append(IntervalEstimate(0.0, 0.0, 1.0, 0.0, 1.0))
                continue
            slope = -self.test_prior * joint[j, j] / share**2
            slope[j] = self.test_prior[j] * (share - joint[j, j]) / share**2
            variance = float(np.square(slope * errors[:, j]).sum())
            estimate = share_estimate(joint[j, j] / share, variance, POPULATION_CLASS, 0.5 / self.rows)
            estimates.append(
                estimate.at_least(*(joint[j, j] / (joint[j, j] + error) for error in self._highest_errors))
            )
        return estimates

    def to_evaluation(self, assumption: AssumptionTest, **known: Any) -> Evaluation:
        """Return the document of this estimate; `known` are further fields of `Evaluation`."""
        accuracy, cells = self.accuracy, self.cells
        return Evaluation(
            estimated_accuracy=accuracy.value,
            interval=(accuracy.low, accuracy.high),
            rows=self.rows,
            width_with_labels=self.width_with_labels,
            classes=tuple(self.classes),
            assumption=assumption,
            clients_interval=(accuracy.clients_low, accuracy.clients_high),
            confusion=tuple(tuple(cell.value for cell in row) for row in cells),
            confusion_low=tuple(tuple(cell.low for cell in row) for row in cells),
            confusion_high=tuple(tuple(cell.high for cell in row) for row in cells),
            recall=self._by_class(self.recall),
            precision=self._by_class(self.precision),
            calibration=self.calibration,
            **known,
        )

    def _by_class(self, estimates: Sequence[IntervalEstimate]) -> tuple[ClassEstimate, ...]:
        named = zip(self.classes, estimates, strict=True)
        return tuple(ClassEstimate(name, each.value, each.low, each.high) for name, each in named)


def estimate_accuracy(predictions: OutOfFoldPredictions, *, seed: int = 0) -> AccuracyEstimate:
    """Estimate the confusion matrix, and the metrics derived from it, from out-of-fold predictions."""
    table, priors = flatten(predictions)
    temperature = estimate_temperature(table, priors)
    shares = estimate_responsibilities(table, priors, temperature.best)
    soft = count_confusion(table, shares)
    solved, solved_error, gains = solve_confusion(table, priors, soft)
    ends = [
        np.diag(count_confusion(table, estimate_responsibilities(table, priors, t)))
        for t in (temperature.low, temperature.high)
    ]
    shift = (ends[0] - ends[1]) / 2
    covariance, repeats = covariance_of_diagonal(table, priors, soft, shares, gains)
    return AccuracyEstimate(
        classes=tuple(predictions.classes),
        test_prior=predictions.test_prior,
        rows=(rows := len(np.unique(table.rows))),
        rows_of_class=table.counts @ priors * (rows / table.counts.sum()),
        soft=soft,
        soft_error=_soft_error(soft, shift),
        solved=solved,
        solved_error=solved_error * repeats,
        diagonal_covariance=covariance,
        diagonal_shift=shift,
        prior_covariance=_prior_covariance(predictions, table, temperature, seed),
        calibration=_calibration(predictions, table, priors),
    )


def _soft_error(soft: Matrix, shift: Matrix) -> Matrix:
    error = SOFT_CELL_ERROR * soft
    np.fill_diagonal(error, np.hypot(SOFT_CELL_ERROR * (1 - np.diag(soft)), shift))
    return error


def _prior_covariance(
    predictions: OutOfFoldPredictions, table: PredictionTable, temperature: Temperature, seed: int
) -> Matrix:
    """Return the covariance (K, K) of the diagonal over draws of uncertain priors."""
    if predictions.draw_priors is None:
        return np.zeros((table.classes, table.classes))
    generator, diagonals = np.random.default_rng(seed), []
    for _ in range(DRAWS):
        priors = np.concatenate(predictions.draw_priors(generator))
        soft = count_confusion(table, estimate_responsibilities(table, priors, temperature.best))
        solved, error, _ = solve_confusion(table, priors, soft)
        value, _ = _combine(
            np.diag(soft), SOFT_ERROR**2 * (1 - np.diag(soft)) ** 2, np.diag(solved), np.diag(error) ** 2
        )
        diagonals.append(value)
    spread: Matrix = np.cov(np.array(diagonals), rowvar=False)
    return spread


def _calibration(
    predictions: OutOfFoldPredictions, table: PredictionTable, priors: Matrix
) -> tuple[SetCalibration, ...]:
    """Return the stated class shares of every set, and the mean of the predicted probabilities for its class mix."""
    with np.errstate(divide="ignore"):
        logs = table.log_probabilities + np.log(priors / table.test_prior)[table.sets]
    shares = np.exp(logs - logs.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    counts = np.maximum(table.counts, 1)[:, None]
    mean, square = table.over_sets(shares) / counts, table.over_sets(shares**2) / counts
    # Variance explained by the classes of rows; sets with exact class counts do not have it.
    explained = np.zeros_like(mean)
    for k in range(table.classes):
        product = table.over_sets(shares * shares[:, [k]]) / counts
        explained += product**2 / np.maximum(mean[:, [k]], 1e-12)
    variance = square - np.where(table.exact[:, None], explained, mean**2)
    error = np.sqrt(np.maximum(variance, 0) / counts)
    names = [(client.name, name) for client in predictions.clients for name in client.set_names]
    return tuple(
        SetCalibration(client, name, predictions.classes[k], float(priors[m, k]), float(mean[m, k]), float(error[m, k]))
        for m, (client, name) in enumerate(names)
        for k in range(table.classes)
        if table.counts[m]
    )


def _combine(first: Any, first_variance: Any, second: Any, second_variance: Any) -> tuple[Any, Any]:
    """Combine two estimates of one quantity by inverse variance."""
    first_variance, second_variance = np.maximum(first_variance, 1e-12), np.maximum(second_variance, 1e-12)
    share = first_variance / (first_variance + second_variance)
    return first + share * (second - first), share * second_variance
