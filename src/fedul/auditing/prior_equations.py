"""What the held-out loss of a network that gives every row the same answer says about class priors.

Let the odds of one class be tau times those that the test prior gives it, and those of all other classes be as the test
prior gives them. Then -log Q of a row of set m is

    log(1 + s (tau - 1)) - log(1 + p_m (tau - 1)) - log pibar_m,

where p_m is the share of the class in set m and s = sum_m pibar_m p_m its share at the client. The mean loss of a
client depends on shares and sizes of sets only, not on its rows. From the loss at several tau the shares p_m follow, up
to the order of sets of equal size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares
from scipy.special import expit, logit

from fedul.core import Matrix

STARTS = 3
"""Random starts of the search for shares."""
PRECISION = 1e-15
MOST_EVALUATIONS = 400
PULL = 1e-5
"""Weight of the published share in the search: it decides where the losses, which are rounded, say nothing."""


@dataclass(frozen=True, eq=False)
class SetSizes:
    """Sizes of the sets of a client, which the attacker is assumed to know.

    Parameters
    ----------
    held_out : ndarray of shape (M,)
        Share of the held-out rows in each set.
    train : ndarray of shape (M,)
        Share of the training rows in each set.
    """

    held_out: Matrix
    train: Matrix

    @classmethod
    def equal(cls, sets: int) -> SetSizes:
        """Return the sizes of sets that are equally large."""
        shares = np.full(sets, 1 / sets)
        return cls(shares, shares)


def constant_losses(shares: Sequence[float] | Matrix, odds: Matrix, sizes: SetSizes) -> Matrix:
    """Return the mean held-out loss of a client at each ratio of the odds.

    Parameters
    ----------
    shares : array-like of shape (M,)
        Share of the class in each set.
    odds : ndarray of shape (T,)
        Values of tau.
    sizes : SetSizes
        Sizes of the sets.

    Examples
    --------
    >>> constant_losses([0.5, 0.5], np.array([1.0, 3.0]), SetSizes.equal(2)).round(4)  # log 2: sets cannot be told
    array([0.6931, 0.6931])
    """
    p, ratios = np.asarray(shares, dtype=float), odds - 1
    terms = -np.log(sizes.train) - np.log1p(np.outer(ratios, p))
    losses: Matrix = terms @ sizes.held_out + np.log1p(ratios * (sizes.train @ p))
    return losses


def solve_shares(
    observed: Matrix, odds: Matrix, sizes: Sequence[SetSizes], weights: Matrix, published: float = 0.5
) -> list[Matrix]:
    """Return the shares of a class in the sets of each client that fit the mean loss over clients best.

    The shares of a client are in descending order.

    Parameters
    ----------
    observed : ndarray of shape (T,)
        Mean loss over the held-out rows of all clients, at each ratio of the odds.
    odds : ndarray of shape (T,)
        Values of tau.
    sizes : sequence of SetSizes
        Sizes of the sets of each client.
    weights : ndarray of shape (C,)
        Share of each client in the held-out rows.
    published : float, default=0.5
        Share of the class that is published.
    """
    generator, ratios, centre = np.random.default_rng(0), odds - 1, logit(published)
    ends = np.cumsum([len(each.train) for each in sizes])

    def residuals(raw: Matrix) -> Matrix:
        parts = zip(np.split(expit(raw), ends[:-1]), sizes, weights, strict=True)
        misfit = sum((w * constant_losses(p, odds, size) for p, size, w in parts), -observed)
        return np.concatenate([misfit, PULL * (raw - centre)])

    def jacobian(raw: Matrix) -> Matrix:
        columns = []
        for p, size, w in zip(np.split(expit(raw), ends[:-1]), sizes, weights, strict=True):
            of_sets = ratios[:, None] / (1 + np.outer(ratios, p)) * size.held_out
            of_mix = (ratios / (1 + ratios * (size.train @ p)))[:, None] * size.train
            columns.append(w * (of_mix - of_sets) * p * (1 - p))
        return np.concatenate([np.concatenate(columns, axis=1), PULL * np.eye(len(raw))])

    settings = {"xtol": PRECISION, "ftol": PRECISION, "gtol": PRECISION, "max_nfev": MOST_EVALUATIONS}
    starts = [centre + generator.normal(size=ends[-1]) for _ in range(STARTS)]
    fits = [least_squares(residuals, start, jac=jacobian, **settings) for start in starts]
    best = min(fits, key=lambda fit: float(fit.cost))
    return [np.sort(p)[::-1] for p in np.split(expit(best.x), ends[:-1])]


def share_error(found: Matrix, true: Sequence[float] | Matrix) -> float:
    """Return the mean absolute difference of shares that are in descending order.

    >>> share_error(np.array([0.7, 0.2]), [0.1, 0.7])
    0.05
    """
    return float(np.round(np.abs(found - np.sort(np.asarray(true))[::-1]).mean(), 12))
