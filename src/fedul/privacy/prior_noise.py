"""Perturbed class priors: a client adds noise to the numbers of rows of each class before anything uses them.

What is protected. The class priors Pi_m of a set are the shares of the classes among n_m persons (rows); n_m is public.
Two data sets are neighbours if one person of one set has another class, so that two of the n_m Pi_mk change by 1. If
the shares were counted on more persons than the set has rows, one person changes them by less, and the guarantee holds
for each of these persons. A person is in one set; the epsilons of several sets with the same person add up.

Sensitivity. In the sum of absolute differences n_m Pi_m changes by at most S = 2. Shares that are known with an error
of at most r (half of the last decimal place) and are divided by their sum can change by 4 r per changed share, in all
S = (2 + 8 r n_m) (1 + 2 K r): the two roundings move by at most 2 r each, and their sum by at most 4 r.

Mechanism. n_m Pi_mk is rounded to a grid of 1 / 1024 rows, which adds at most 1 step per class to S. Discrete Laplace
noise of scale S / epsilon in every entry makes the result epsilon-differentially private with delta 0 (Dwork et al.,
Calibrating Noise to Sensitivity, TCC 2006; discrete: Ghosh et al., Universally Utility-Maximizing Privacy Mechanisms,
STOC 2009). With two classes the second share follows from the first, which changes by S / 2. The sets of a client share
no person, so epsilon holds for all of them.

Proportions. Noisy counts may be negative and have another sum. Each share becomes the mean of its posterior, given the
noisy count and that all counts in 0..n_m are equally likely; the shares of a set are then divided by their sum. This
uses only noisy counts, so it costs no privacy. No share is 0, which would state that a class is absent.

A second draw for the same priors would be a second release: draws are stored and used again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fedul.core import Federation, Matrix, UnlabeledSets
from fedul.errors import InputError
from fedul.privacy.discrete_laplace import discrete_laplace
from fedul.privacy.random_source import RandomBytes

GRID = 1024
"""Steps of the grid of counts in one row."""


@dataclass(frozen=True, eq=False)
class PerturbedPriors:
    """Class priors of the sets of a federation after noise.

    Parameters
    ----------
    priors : ndarray of shape (S, K)
        Class priors of all sets, one client after another.
    epsilon : float
        Epsilon of the class of one row.
    """

    priors: Matrix
    epsilon: float

    def apply(self, federation: Federation) -> Federation:
        """Return the federation with these priors."""
        if self.priors.shape != federation.columns.stacked_priors.shape:
            raise InputError("the stored perturbed priors are of other sets; train in another folder (--out).")
        return federation.with_noisy_priors(self.priors, count_noise(self.epsilon, self.priors.shape[1]))


def perturb_federation(federation: Federation, epsilon: float, source: RandomBytes) -> PerturbedPriors:
    """Return the class priors of a federation with noise.

    Parameters
    ----------
    federation : Federation
        The clients.
    epsilon : float
        Epsilon of the class of one row.
    source : RandomBytes
        Random bytes, of the operating system for a guarantee.

    Raises
    ------
    InputError
        If exact priors were used already, or rows have labels, which are class priors of single rows.
    """
    if federation.site_adjustments is not None:
        raise InputError(
            "prior-epsilon: the rows are adjusted to the test prior by their exact class priors; use "
            "--site-adjustment off, or leave prior-epsilon out."
        )
    clients = [perturb_client(client, epsilon, source) for client in federation.clients]
    return PerturbedPriors(np.concatenate(clients), epsilon)


def perturb_client(client: UnlabeledSets, epsilon: float, source: RandomBytes) -> Matrix:
    """Return the class priors (M, K) of a client with noise; parameters are those of `perturb_federation`."""
    if client.labelled_rows:
        raise InputError(
            f"prior-epsilon: client '{client.name}' has rows with labels, which it would disclose; leave the labels or "
            "prior-epsilon out."
        )
    rows = np.bincount(client.prior_rows.sets.numpy(), minlength=len(client.priors))
    return perturb_shares(client.priors, rows, client.prior_scope.rounding, epsilon, source)


def perturb_shares(
    priors: Matrix, rows: NDArray[np.int64], rounding: float, epsilon: float, source: RandomBytes
) -> Matrix:
    """Return class priors with noise.

    Parameters
    ----------
    priors : ndarray of shape (M, K)
        Class priors of sets.
    rows : ndarray of shape (M,)
        Number of rows of each set.
    rounding : float
        Largest rounding error of a share.
    epsilon, source
        As of `perturb_federation`.
    """
    classes = priors.shape[1]
    drawn = 1 if classes == 2 else classes  # entries with noise of their own
    scales = [noise_scale(int(n), classes, rounding, epsilon) for n in rows]
    noise = np.array(
        [[discrete_laplace(Fraction(scale), source) for _ in range(drawn)] for scale in scales], np.float64
    )
    noisy = (np.rint(GRID * rows[:, None] * priors[:, :drawn]) + noise) / GRID  # (M, K), in rows
    if classes == 2:
        noisy = np.column_stack([noisy, rows - noisy[:, 0]])
    return proportions(noisy, rows, np.array(scales) / GRID)


def noise_scale(rows: int, classes: int, rounding: float, epsilon: float) -> int:
    """Return the scale of the noise of each count of a set, in steps of the grid, as the module derives it.

    Examples
    --------
    >>> noise_scale(50, 3, 0.0, 1.0), noise_scale(50, 2, 0.0, 0.5)
    (2051, 2050)
    """
    change = (2 + 8 * Fraction(rounding) * rows) * (1 + 2 * classes * Fraction(rounding))
    steps = math.ceil(change * GRID / 2) + 1 if classes == 2 else math.ceil(change * GRID) + classes
    return math.ceil(steps / Fraction(epsilon))


def count_noise(epsilon: float, classes: int) -> float:
    """Return the standard deviation of the noise of each count, in rows, for shares that are not rounded."""
    return math.sqrt(2) * noise_scale(1, classes, 0.0, epsilon) / GRID


def proportions(noisy: Matrix, rows: NDArray[np.int64], scales: Matrix) -> Matrix:
    """Return class priors (M, K) from noisy counts, as the module states.

    Parameters
    ----------
    noisy : ndarray of shape (M, K)
        Counts with Laplace noise.
    rows : ndarray of shape (M,)
        Number of rows of each set, to which the counts without noise add up.
    scales : ndarray of shape (M,)
        Scale of the noise of each set.
    """
    total, scale = rows[:, None].astype(np.float64), scales[:, None]  # (M, 1)
    centred = np.clip(noisy - (noisy.sum(1, keepdims=True) - total) / noisy.shape[1], 0, total)
    below, above = centred / scale, (total - centred) / scale
    # Mean of x with density exp(-|x - y| / scale) on 0..n, from the parts of the density on both sides of y.
    mass = -np.expm1(-below) - np.expm1(-above)
    mean = centred + scale * (_first_moment(above) - _first_moment(below)) / mass
    shares: Matrix = mean / mean.sum(1, keepdims=True)
    return shares


def _first_moment(length: Matrix) -> Matrix:
    """Return the integral of u exp(-u) from 0 to `length`."""
    moment: Matrix = -np.expm1(-length) - length * np.exp(-length)
    return moment
