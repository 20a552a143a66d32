"""Accuracy of a classifier from the class priors of sets, without labels.

Two estimates of the confusion matrix are combined (`confusion`): from the shares of predictions in sets, and from the
predicted probabilities. `set_effects` examines whether sets differ in their class mix only. Where they visibly do not,
the lower end of the interval is moved down; where the result would say nothing or mislead, there is none (`refusal`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from fedul.core import RANK_TOLERANCE, Z_95, Matrix, validate_class_mix
from fedul.evaluation.assumption import AssumptionTest
from fedul.evaluation.confusion import ConfusionModel, Solution
from fedul.evaluation.document import ClassEstimate, Evaluation, SetCalibration
from fedul.evaluation.intervals import IntervalEstimate, share_estimate
from fedul.evaluation.out_of_fold import OutOfFoldPredictions
from fedul.evaluation.refusal import NOT_DETERMINED, Refusal, find_refusal
from fedul.evaluation.responsibilities import (
    PredictionTable,
    count_confusion,
    estimate_responsibilities,
    estimate_temperature,
    flatten,
)
from fedul.evaluation.set_coverage import check_prediction_sets
from fedul.evaluation.set_effects import SetEffects, estimate_set_effects

DRAWS = 30
"""Draws of uncertain priors."""

DESIGN_EFFECT = 2.25
"""Factor on the variance of independent rows. The rows of a site are a sample of a population, and seldom independent:
several are of one patient, writer or device. Standard errors 1.5 times as large are common in surveys with clusters
(Kish, Survey Sampling, 1965)."""

Z_ONE_SIDED = 1.645
"""Quantile of the normal distribution for a bound that errs on one side in 5 % of cases."""


@dataclass(frozen=True, eq=False)
class AccuracyEstimate:
    """Confusion matrix of a classifier, estimated without labels, and the metrics derived from it."""

    classes: Sequence[str]
    test_prior: Matrix  # (K,)
    rows: int  # distinct rows that were evaluated
    rows_of_class: Matrix  # (K,): expected rows of each class, from the priors
    model: ConfusionModel
    temperature: float  # of the predicted probabilities, estimated on sets left out
    effects: SetEffects
    free_sets: int  # sets beyond those that determine the confusion matrix; negative if they do not
    prior_covariance: Matrix  # (K, K): of the diagonal, from uncertain priors
    calibration: tuple[SetCalibration, ...]

    @cached_property
    def refusal(self) -> Refusal | None:
        """Why the accuracy cannot be estimated; None if it can."""
        return self._find_refusal()

    def _find_refusal(self, *, contradicted: bool = False) -> Refusal | None:
        if self.free_sets < 0:
            return NOT_DETERMINED
        solved, unadjusted = self.model.least_squares(self.test_prior), self._estimate(self.test_prior)
        return find_refusal(solved, unadjusted, self.accuracy, self.effects, contradicted=contradicted)

    @cached_property
    def accuracy(self) -> IntervalEstimate:
        """Accuracy at the test prior; rely on it only if there is no `refusal`."""
        return self.at(self.test_prior)

    def at(self, prior: ArrayLike) -> IntervalEstimate:
        """Return the accuracy of the same predictions in a population with another class mix."""
        prior = validate_class_mix(prior, tuple(self.classes))
        estimate = self._estimate(prior)
        chance = prior @ (prior @ self.model.values).clip(0, 1)  # accuracy if predictions did not depend on the class
        return estimate.lowered(Z_ONE_SIDED * self.effects.visible * max(estimate.value - chance, 0.0))

    def _estimate(self, prior: Matrix) -> IntervalEstimate:
        found = self.model.accuracy(prior)
        value = float(np.clip(found.value, 0, 1))
        drawn = DESIGN_EFFECT * max(value * (1 - value), 0.25 / self.rows) / self.rows
        known = found.calibration + found.rows + drawn + float(prior @ self.prior_covariance @ prior)
        excess = max(found.sets, found.models) - found.rows
        if excess <= 0:
            return share_estimate(value, known, self.rows)
        # Sets, or models, vary by more than sampling explains; there are few of them (Satterthwaite).
        free = self.free_sets if found.sets >= found.models else self.model.table.models - 1
        quantile = float(special.stdtrit(max(free * (1 + known / excess) ** 2, 1.0), 0.975))
        return share_estimate(value, known + excess, self.rows, quantile)

    @property
    def width_with_labels(self) -> float:
        """Width of the interval if the same number of rows had labels."""
        value = self.accuracy.value
        return float(2 * Z_95 * np.sqrt(value * (1 - value) / self.rows))

    @cached_property
    def confusion(self) -> Matrix:
        """Confusion matrix with shares in 0..1, whose diagonal gives the estimated accuracy."""
        values = self.model.values
        right = np.diag(values).clip(0, 1)
        total = self.test_prior @ (1 - right)
        if total > 0:
            right = (1 - (1 - right) * (1 - self.accuracy.value) / total).clip(0, 1)
        wrong = values.clip(1e-12) * (1 - np.eye(len(values)))
        confusion: Matrix = wrong * ((1 - right) / wrong.sum(axis=1))[:, None]
        confusion[np.diag_indices_from(confusion)] = right
        return confusion

    @cached_property
    def cells(self) -> list[list[IntervalEstimate]]:
        """The confusion matrix with intervals: true class by predicted class."""
        found, values = self.model.accuracy(self.test_prior), self.confusion
        counts = np.maximum(self.rows_of_class, 1.0)
        inflation = max(found.sets / found.rows, found.models / found.rows, 1.0) if found.rows > 0 else 1.0
        variances = inflation * self.model.cell_variances + values * (1 - values) / counts[:, None]
        variances += np.diag(np.diag(self.prior_covariance))
        cells = [
            [share_estimate(float(v), float(s), count) for v, s in zip(*row, strict=True)]
            for count, *row in zip(counts, values, variances, strict=True)
        ]
        most = 1 - self.accuracy.low
        shift = Z_ONE_SIDED * self.effects.visible * np.abs(values - self.test_prior @ values)
        for k, share in enumerate(self.test_prior):  # no class can have more errors than there are in total
            cells[k] = [
                cell.lowered(shift[k, j]).at_least(1 - most / share)
                if j == k
                else cell.raised(shift[k, j]).at_most(most / share)
                for j, cell in enumerate(cells[k])
            ]
        return cells

    @property
    def recall(self) -> list[IntervalEstimate]:
        """Recall of each class."""
        return [row[k] for k, row in enumerate(self.cells)]

    @property
    def precision(self) -> list[IntervalEstimate]:
        """Precision of each class at the test prior."""
        cells = self.cells
        errors = np.array([[cell.standard_error for cell in row] for row in cells])
        joint = self.test_prior[:, None] * self.confusion  # (K, K)
        estimates = []
        for j, share in enumerate(joint.sum(axis=0)):
            if share < 1e-9:  # never predicted: nothing is known
                estimates.append(IntervalEstimate(0.0, 0.0, 1.0))
                continue
            slope = -self.test_prior * joint[j, j] / share**2
            slope[j] = self.test_prior[j] * (share - joint[j, j]) / share**2
            estimate = share_estimate(joint[j, j] / share, float(np.square(slope * errors[:, j]).sum()), self.rows)
            shift = Z_ONE_SIDED * self.effects.visible * max(estimate.value - self.test_prior[j], 0.0)
            estimates.append(estimate.lowered(shift).at_least(1 - (1 - self.accuracy.low) / share))
        return estimates

    def to_evaluation(self, assumption: AssumptionTest, **known: Any) -> Evaluation:
        """Return the document of this estimate; `known` are further fields of `Evaluation`."""
        common: dict[str, Any] = {
            "rows": self.rows,
            "classes": tuple(self.classes),
            "assumption": assumption,
            "calibration": self.calibration,
            "set_effects": self.effects,
            **known,
        }
        if refusal := self._find_refusal(contradicted=assumption.contradicted):
            return Evaluation(None, None, reason=refusal.reason, remedies=refusal.remedies, **common)
        accuracy, cells = self.accuracy, self.cells
        return Evaluation(
            estimated_accuracy=accuracy.value,
            interval=(accuracy.low, accuracy.high),
            width_with_labels=self.width_with_labels,
            confusion=tuple(tuple(cell.value for cell in row) for row in cells),
            confusion_low=tuple(tuple(cell.low for cell in row) for row in cells),
            confusion_high=tuple(tuple(cell.high for cell in row) for row in cells),
            recall=self._by_class(self.recall),
            precision=self._by_class(self.precision),
            prediction_sets=check_prediction_sets(
                self.model.table, self.model.priors, self.model.responsibilities, self.temperature
            ),
            **common,
        )

    def _by_class(self, estimates: Sequence[IntervalEstimate]) -> tuple[ClassEstimate, ...]:
        named = zip(self.classes, estimates, strict=True)
        return tuple(ClassEstimate(name, each.value, each.low, each.high) for name, each in named)


def estimate_accuracy(predictions: OutOfFoldPredictions, *, seed: int = 0) -> AccuracyEstimate:
    """Estimate the confusion matrix, and the metrics derived from it, from out-of-fold predictions."""
    table, priors = flatten(predictions)
    temperature = estimate_temperature(table, priors)
    shares = estimate_responsibilities(table, priors, temperature.best)
    low, high = (count_confusion(table, estimate_responsibilities(table, priors, t)) for t in temperature.ends)
    model = ConfusionModel(table, priors, shares, count_confusion(table, shares), (high - low) / 2)
    filled = priors[table.counts > 0]
    rank = int(np.linalg.matrix_rank(filled, tol=RANK_TOLERANCE * np.linalg.norm(filled, 2)))
    rows = len(np.unique(table.rows))
    return AccuracyEstimate(
        classes=tuple(predictions.classes),
        test_prior=predictions.test_prior,
        rows=rows,
        rows_of_class=table.counts @ priors * (rows / table.counts.sum()),
        model=model,
        temperature=temperature.best,
        effects=estimate_set_effects(table, priors, shares),
        free_sets=len(filled) - rank if rank == table.classes else -1,
        prior_covariance=_prior_covariance(predictions, model, temperature.best, seed),
        calibration=_calibration(predictions, table, priors),
    )


def _prior_covariance(
    predictions: OutOfFoldPredictions, model: ConfusionModel, temperature: float, seed: int
) -> Matrix:
    """Return the covariance (K, K) of the diagonal over draws of uncertain priors."""
    table = model.table
    if predictions.draw_priors is None:
        return np.zeros((table.classes, table.classes))
    generator, diagonals = np.random.default_rng(seed), []
    omega = float(model.weights @ [each.omega for each in model.solutions])
    for _ in range(DRAWS):
        priors = np.concatenate(predictions.draw_priors(generator))
        shares = estimate_responsibilities(table, priors, temperature)
        drawn = ConfusionModel(table, priors, shares, count_confusion(table, shares), model.temperature_effect)
        diagonals.append(np.diag(Solution.of(drawn, omega).values))
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
