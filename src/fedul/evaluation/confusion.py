"""Confusion matrix C (true class k, predicted class j) from the shares of predictions in sets.

If sets differ in their class mix only, the shares of the predictions in set m have the expectation Pi_m C. Least
squares alone would solve this without bias, but with a large variance where sets are similar. The predicted
probabilities give a second estimate, `soft`, with a small variance, but it is only as good as they are calibrated. So
C = soft + t E + Delta. Here t E increases all errors of `soft` in proportion, t ~ N(0, `CALIBRATION_ERROR`^2), and
Delta_kj ~ N(0, (omega e_kj)^2), where e_kj is the error in `soft` that belongs to the cell. The size omega of errors in
single cells is estimated from the sets (empirical Bayes), with a half-normal prior. With few rows C stays near `soft`,
with many the sets decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedul.core import Matrix
from fedul.evaluation.responsibilities import PredictionTable

CALIBRATION_ERROR = 0.3
"""Relative error of `soft`, as a standard deviation. After temperature scaling, the calibration errors of networks are
about 4 to 30 % of their errors (Guo et al., On Calibration of Modern Neural Networks, ICML 2017): take the most."""

CALIBRATION_ERRORS = np.array([0.02, 0.05, 0.1, 0.2, 0.3, 0.45, 0.7, 1.0, 2.0])
"""Values of omega over which the estimate is averaged."""

SMALLEST_ERROR = 0.01
"""Smallest error that predicted probabilities are trusted with."""

LEAST_SQUARES = 1e3
"""Calibration error at which the shares alone decide."""


@dataclass(frozen=True)
class LinearEstimate:
    """An estimate that is linear in the shares of the sets, with the parts of its variance."""

    value: float
    calibration: float  # variance because the calibration of probabilities is uncertain, temperature included
    rows: float  # variance because rows are drawn
    sets: float  # the same, from the residuals of the sets: larger if these vary beyond sampling
    models: float  # the same, from the residuals of all sets that one model predicts: larger if models differ


@dataclass(frozen=True, eq=False)
class ConfusionModel:
    """Data of the equations, and their solutions for each omega."""

    table: PredictionTable
    priors: Matrix  # (S, K)
    responsibilities: Matrix  # (n, K)
    soft: Matrix  # (K, K)
    temperature_effect: Matrix  # (K, K): change of `soft` for a temperature one standard error higher

    @cached_property
    def solutions(self) -> list[Solution]:
        """Solutions for all omega."""
        return [Solution.of(self, omega) for omega in CALIBRATION_ERRORS]

    @cached_property
    def weights(self) -> Matrix:
        """Posterior probability of each omega."""
        logs = np.array([each.log_evidence for each in self.solutions])
        logs += np.log(np.gradient(CALIBRATION_ERRORS)) - (CALIBRATION_ERRORS / CALIBRATION_ERROR) ** 2 / 2
        weights = np.exp(logs - logs.max())
        total: Matrix = weights / weights.sum()
        return total

    @cached_property
    def values(self) -> Matrix:
        """Estimate of C (K, K); it may leave 0..1."""
        values: Matrix = np.tensordot(self.weights, [each.values for each in self.solutions], axes=1)
        return values

    @cached_property
    def cell_variances(self) -> Matrix:
        """Variance of each cell of `values` (K, K), without variation between sets."""
        within = np.tensordot(self.weights, [each.cell_variances for each in self.solutions], axes=1)
        between = np.tensordot(self.weights, [(each.values - self.values) ** 2 for each in self.solutions], axes=1)
        variances: Matrix = within + between + self.temperature_effect**2
        return variances

    def least_squares(self, prior: Matrix) -> LinearEstimate:
        """Return the accuracy from the shares alone: without bias, with a large variance, and possibly above 1."""
        return Solution.of(self, LEAST_SQUARES, LEAST_SQUARES).accuracy(prior)

    def accuracy(self, prior: Matrix) -> LinearEstimate:
        """Return the accuracy in a population with this class mix."""
        estimates = [each.accuracy(prior) for each in self.solutions]
        mean = {name: float(self.weights @ [vars(each)[name] for each in estimates]) for name in vars(estimates[0])}
        spread = float(self.weights @ [(each.value - mean["value"]) ** 2 for each in estimates])
        return LinearEstimate(**{**mean, "calibration": mean["calibration"] + spread})


@dataclass(frozen=True, eq=False)
class Solution:
    """Solution of the equations for one omega. Columns j of C are independent given t."""

    model: ConfusionModel
    omega: float
    common: float  # standard deviation of t
    errors: Matrix  # E (K, K)
    scales: Matrix  # e (K, K)
    gain: Matrix  # (K, K, S): Delta_j = gain_j (deviation_j - expected_j t)
    inverse: Matrix  # (K, K, K): covariance of Delta_j given t
    slope: Matrix  # (S, K): t = sum(slope * deviation)
    precision: float  # of t
    t: float
    log_evidence: float

    @classmethod
    def of(cls, model: ConfusionModel, omega: float, common: float = CALIBRATION_ERROR) -> Solution:
        """Solve the equations."""
        table, priors, soft = model.table, model.priors, model.soft
        classes = len(soft)
        counts = np.maximum(table.counts, 1e-9)[:, None]
        errors = soft - np.eye(classes)
        even = (1 - np.diag(soft))[:, None] / (classes - 1)  # errors may belong to other cells than `soft` says
        scales = np.where(np.eye(classes) > 0, np.abs(errors), (np.abs(errors) + even) / 2)
        scales = np.maximum(scales, SMALLEST_ERROR)
        near = (100 * soft + 1 / classes) / 101  # no variance is zero
        share = priors @ near
        within = priors @ (near * (1 - near))
        noise = np.where(table.exact[:, None], within, share * (1 - share)) / counts  # (S, K)
        weight = 1 / noise
        prior_variance = (omega * scales.T) ** 2  # (j, k)
        gram = np.einsum("mk,mj,ml->jkl", priors, weight, priors, optimize=True)
        gram[:, np.arange(classes), np.arange(classes)] += 1 / prior_variance
        inverse = np.linalg.inv(gram)
        gain = np.einsum("jkl,ml,mj->jkm", inverse, priors, weight, optimize=True)

        def whiten(values: Matrix) -> Matrix:
            explained = np.einsum("mk,jkn,nj->mj", priors, gain, values, optimize=True)
            whitened: Matrix = weight * (values - explained)
            return whitened

        deviation, expected = table.shares() - priors @ soft, priors @ errors
        slope = whiten(expected)
        precision = float((expected * slope).sum()) + common**-2
        score = float((deviation * slope).sum())
        determinants = np.linalg.slogdet(gram)[1].sum() + np.log(prior_variance).sum() + np.log(noise).sum()
        evidence = score**2 / precision - (deviation * whiten(deviation)).sum() - determinants
        evidence -= np.log(precision)
        return cls(
            model=model,
            omega=omega,
            common=common,
            errors=errors,
            scales=scales,
            gain=gain,
            inverse=inverse,
            slope=slope / precision,
            precision=precision,
            t=score / precision,
            log_evidence=0.5 * evidence * (classes - 1) / classes,  # the shares of a set sum to one
        )

    @cached_property
    def values(self) -> Matrix:
        """Posterior mean of C (K, K)."""
        model = self.model
        common = model.soft + self.t * self.errors
        rest = model.table.shares() - model.priors @ common
        values: Matrix = common + np.einsum("jkm,mj->kj", self.gain, rest)
        return values

    @cached_property
    def cell_variances(self) -> Matrix:
        """Posterior variance of each cell (K, K)."""
        own = np.einsum("jkk->kj", self.inverse)
        explained = np.einsum("jkm,mj->kj", self.gain, self.model.priors @ self.errors)
        variances: Matrix = own + (self.errors - explained) ** 2 / self.precision
        return variances

    def accuracy(self, prior: Matrix) -> LinearEstimate:
        """Return the accuracy, linear in the shares of the sets."""
        model, classes = self.model, np.arange(len(prior))
        own = self.gain[classes, classes]  # (K, S)
        expected = model.priors @ self.errors
        of_t = prior @ (np.diag(self.errors) - (own * expected.T).sum(axis=1))
        gains = own.T * prior + of_t * self.slope  # (S, K)
        residual = model.table.shares() - model.priors @ self.values
        missed = np.diag(prior) - model.priors.T @ gains  # (K, K): how an error of `soft` changes the estimate
        calibration = self.common**2 * (missed * self.errors).sum() ** 2
        calibration += self.omega**2 * ((missed * self.scales) ** 2).sum()
        calibration += (missed * model.temperature_effect).sum() ** 2
        return LinearEstimate(
            value=float(prior @ np.diag(self.values)),
            calibration=float(calibration),
            rows=_row_variance(model, self.values, gains),
            sets=_set_variance(gains * residual, model.table.counts, model.priors),
            models=_model_variance(gains * residual, model.table),
        )


def _set_variance(parts: Matrix, counts: Matrix, priors: Matrix) -> float:
    """Return the variance of a sum over sets from their residuals (S, K)."""
    sets = int((counts > 0).sum())
    free = sets - np.linalg.matrix_rank(priors)
    return float((parts.sum(axis=1) ** 2).sum() * sets / free) if free > 0 else 0.0


def _model_variance(parts: Matrix, table: PredictionTable) -> float:
    """Return the variance of a sum over sets whose residuals (S, K) have the errors of a model in common."""
    count = table.models
    if count < 2:
        return 0.0
    known = table.folds >= 0
    of_model = np.bincount(table.folds[known], parts.sum(axis=1)[known])
    return float((of_model**2).sum() * count / (count - 1))


def _row_variance(model: ConfusionModel, values: Matrix, gains: Matrix) -> float:
    """Return the variance because rows are drawn; a row may be in several sets.

    A row adds gain_m,j (1[predicted j] - expected) / n_m for each of its sets. Expected is C_k where class counts are
    exact, so that only the prediction is random, and Pi_m C where the classes of the rows are random too.
    """
    table = model.table
    gains = gains / np.maximum(table.counts, 1)[:, None]
    found = gains[table.sets, table.predicted]
    values = values.clip(0, 1)
    of_set = (gains * (model.priors @ values)).sum(axis=1)[table.sets]
    order = np.argsort(table.rows, kind="stable")
    starts = np.flatnonzero(np.diff(table.rows[order], prepend=-1))
    total = 0.0
    for k in range(table.classes):
        of_class = (gains @ values[k])[table.sets]
        added = found - np.where(table.exact[table.sets], of_class, of_set)
        share = model.responsibilities[:, k]
        if len(starts) < len(order):
            share = np.add.reduceat(share[order], starts) / np.diff(starts, append=len(order))
            added = np.add.reduceat(added[order], starts)
        total += float((share * added**2).sum())
    return total
