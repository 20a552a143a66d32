"""Effects of sets on the score of a classifier, beyond what their class mix explains.

If sets differ in their class mix only, the mean score of set m is Pi_m mu, and its variance is Pi_m w + B_m, where w_k
is the variance within class k and B_m = sum_k Pi_mk mu_k^2 - (Pi_m mu)^2 the variance between classes. Two deviations
show effects of sets:

- The means scatter around Pi_m mu by more than their sampling error. `visible` is the size of that scatter relative to
  the differences that the class mix makes. A part of it may run parallel to the class mix; this part cannot be seen,
  and makes the classifier look better than it is.
- The variances within sets are Pi_m w + lambda B_m with lambda < 1. Then the differences between sets are larger than
  the differences between classes within sets: an effect of sets does run parallel to the class mix.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from fedul.core import Matrix
from fedul.evaluation.responsibilities import PredictionTable

SMALLEST_VARIANCE = 0.2
"""Lower bound of the fitted variance of a set, relative to the mean of all sets."""

MIN_FREE_SETS = 10
"""Number of sets beyond the number of unknowns that a test of variances needs."""

LEVEL = 0.01
"""Level of both tests. Scores are skewed and sets may be small, so that fewer than 1 % of honest sets are not promised:
on simulated worlds it is 1 to 5 %."""


@dataclass(frozen=True)
class SetEffects:
    """Effects of sets on the score.

    Parameters
    ----------
    visible : float
        Lower 99 % bound of the standard deviation of set effects, relative to that of the differences that the class
        mix makes; 0 if the means of sets do not contradict the assumption.
    p_value : float
        P-value of the test that there are no set effects.
    spread : float
        Lambda: variance between classes within sets, relative to what the differences between sets imply.
    spread_p_value : float or None
        P-value of the test of lambda = 1 against lambda < 1; None with too few sets.
    """

    visible: float
    p_value: float
    spread: float
    spread_p_value: float | None

    @property
    def run_parallel(self) -> bool:
        """Whether an effect of sets runs parallel to the class mix."""
        return self.spread_p_value is not None and self.spread_p_value < LEVEL


def estimate_set_effects(table: PredictionTable, priors: Matrix, responsibilities: Matrix) -> SetEffects:
    """Estimate the effects of sets on the scores of all classes.

    Responsibilities (n, K) serve for the variance within classes, where class counts are exact.
    """
    scores = table.scores if table.classes > 2 else table.scores[:, :1]
    size = np.maximum(table.counts, 1)[:, None]
    means = table.over_sets(scores) / size
    freedom = np.maximum(table.counts - 1, 0)  # (S,)
    variances = table.over_sets((scores - means[table.sets]) ** 2) / np.maximum(freedom, 1)[:, None]
    weights = responsibilities / np.maximum(responsibilities.sum(axis=0), 1e-12)
    within = (weights.T @ scores**2 - (weights.T @ scores) ** 2).clip(0)  # (K, J)
    by_score = zip(means.T, variances.T, (priors @ within).T, table.model_variance.T, strict=False)
    columns = [_fit(table, priors, freedom, *column) for column in by_score]
    free = int((table.counts > 0).sum()) - int(np.linalg.matrix_rank(priors))
    if free < 1:
        return SetEffects(0.0, 1.0, 1.0, None)
    critical = special.chdtri(free, LEVEL / len(columns))  # one level for all scores jointly
    beyond = sum(max(0.0, (each.misfit - critical) / each.information) for each in columns)
    explained = sum(each.explained for each in columns)
    worst = max(each.misfit for each in columns)
    spread, p_value = _test_spread(columns, priors, freedom)
    return SetEffects(
        visible=float(np.sqrt(beyond / max(explained, 1e-12))),
        p_value=min(1.0, len(columns) * float(special.chdtrc(free, max(worst, 0.0)))),
        spread=spread,
        spread_p_value=p_value,
    )


@dataclass(frozen=True, eq=False)
class _ScoreFit:
    """Regression of the means and variances of one score on the class priors."""

    misfit: float  # weighted sum of squared residuals of the means
    information: float  # increase of the expected misfit per unit of variance of set effects
    explained: float  # variance of the fitted means over sets
    between: Matrix  # (S,): variance between classes, without what is linear in the priors
    variance: Matrix  # (S,): variance of rows, without what is linear in the priors
    weight: Matrix  # (S,): of a set's variance


def _fit(
    table: PredictionTable,
    priors: Matrix,
    freedom: Matrix,
    means: Matrix,
    variances: Matrix,
    within_classes: Matrix,
    model_variance: Matrix,
) -> _ScoreFit:
    """Fit one score; (S,) each. The models of the folds differ, which is no effect of sets: `model_variance`."""
    mean_variance = max(float(freedom @ variances / max(freedom.sum(), 1)), 1e-9)
    noise = np.full(len(priors), mean_variance)
    filled = np.maximum(table.counts, 1e-9)
    within = _projection(priors, freedom)
    for _ in range(3):  # the weights of the means depend on the variances, and these on the means
        weight = 1 / (noise / filled + model_variance)
        fitted = _projection(priors, weight)
        mu = fitted @ means
        covariance = (fitted / weight) @ fitted.T  # of mu, which makes its squares too large
        between = priors @ (mu**2 - np.diag(covariance)) - (priors @ mu) ** 2
        between += np.einsum("mk,kl,ml->m", priors, covariance, priors)
        between = np.where(table.exact, between * filled / np.maximum(filled - 1, 1), between)
        fitted_variances = np.maximum(priors @ (within @ variances), SMALLEST_VARIANCE * mean_variance)
        noise = np.where(table.exact, np.maximum(within_classes, 1e-9), fitted_variances)
    explained = priors @ mu
    middle = table.counts @ explained / table.counts.sum()
    return _ScoreFit(
        misfit=float(weight @ (means - explained) ** 2),
        information=float(weight.sum() - np.trace(fitted @ (weight[:, None] * priors))),
        explained=float(table.counts @ (explained - middle) ** 2 / table.counts.sum()),
        between=between - priors @ (within @ between),
        variance=variances - priors @ (within @ variances),
        weight=freedom / mean_variance**2,
    )


def _projection(priors: Matrix, weight: Matrix) -> Matrix:
    """Return the matrix (K, S) of weighted least squares."""
    weighted = (priors * weight[:, None]).T
    gain: Matrix = np.linalg.pinv(weighted @ priors, rcond=1e-10, hermitian=True) @ weighted
    return gain


def _test_spread(columns: list[_ScoreFit], priors: Matrix, freedom: Matrix) -> tuple[float, float | None]:
    """Return lambda over all scores, and its p-value; standard errors are from sets (HC3)."""
    information = sum(float(each.weight @ each.between**2) for each in columns)
    usable = freedom > 0
    free = int(usable.sum()) - int(np.linalg.matrix_rank(priors)) - 1
    if information < 1e-12 or free < MIN_FREE_SETS:
        return 1.0, None
    spread = sum(float(each.weight @ (each.between * each.variance)) for each in columns) / information
    scores = sum(each.weight * each.between * (each.variance - spread * each.between) for each in columns)
    own = sum(each.weight * each.between**2 for each in columns) / information
    leverage = own + np.einsum("mk,km->m", priors, _projection(priors, freedom))
    error = float(np.sqrt(np.square(scores / np.clip(1 - leverage, 0.1, 1)).sum())) / information
    return spread, float(special.stdtr(free, (spread - 1) / max(error, 1e-9)))
