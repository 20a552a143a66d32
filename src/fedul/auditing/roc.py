"""How well scores tell members from others: area under the ROC curve, and hits at a low rate of false alarms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from fedul.core import Matrix

FALSE_ALARMS = 0.01
"""Rate of false alarms at which hits are counted (Carlini et al., 2022)."""
RESAMPLES = 200
Membership = NDArray[np.bool_]


@dataclass(frozen=True)
class Roc:
    """Area under the curve and hits at 1 % false alarms, each with its 95 % interval."""

    auc: float
    auc_low: float
    auc_high: float
    tpr: float
    tpr_low: float
    tpr_high: float


def measure_roc(scores: Matrix, members: Membership, generator: np.random.Generator) -> Roc:
    """Return how well scores tell members from others.

    Rows are resampled for the intervals, with the scores of all models for a row at once, since these are dependent.

    Parameters
    ----------
    scores : ndarray of shape (models, n)
        Score of each row at each model; members should have larger ones.
    members : ndarray of shape (models, n), bool
        Which rows each model was trained on.
    generator : numpy.random.Generator
        Source of the resamples.
    """
    count = scores.shape[1]
    auc, tpr = area(scores.ravel(), members.ravel()), hits(scores.ravel(), members.ravel())
    drawn = [generator.integers(count, size=count) for _ in range(RESAMPLES)]
    areas = [area(scores[:, at].ravel(), members[:, at].ravel()) for at in drawn]
    rates = [hits(scores[:, at].ravel(), members[:, at].ravel()) for at in drawn]
    ends = [float(value) for values in (areas, rates) for value in np.quantile(values, [0.025, 0.975])]
    return Roc(auc, ends[0], ends[1], tpr, ends[2], ends[3])


def area(scores: Matrix, members: Membership) -> float:
    """Return the probability that a member has a larger score than another row; ties count one half.

    >>> area(np.array([3.0, 2.0, 1.0]), np.array([True, False, False]))
    1.0
    """
    inside = int(members.sum())
    outside = len(members) - inside
    ranks = rankdata(scores)[members].sum()
    return float((ranks - inside * (inside + 1) / 2) / (inside * outside)) if inside and outside else 0.5


def hits(scores: Matrix, members: Membership, rate: float = FALSE_ALARMS) -> float:
    """Return the share of members whose score is above all but this share of the other rows."""
    others = np.sort(scores[~members])
    allowed = int(rate * len(others))
    if not len(others) or not members.any():
        return 0.0
    threshold = others[len(others) - 1 - allowed]
    return float((scores[members] > threshold).mean())
