"""Class priors Pi (M x K): row m holds the class proportions of set m.

Functions to validate, sample, perturb and diagnose them.
Lu et al., Federated Learning from Only Unlabeled Data with Class-Conditional-Sharing Clients, ICLR 2022.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedul._utils.display import counted
from fedul.config import NOISE_FORMULAS, PRIOR_RECIPES
from fedul.errors import InputError, unknown_name

Matrix = NDArray[np.float64]

SUM_TOLERANCE = 1e-3
"""Accepted deviation of a row's sum from one: published figures are rounded."""

ROUNDING = float(np.finfo(np.float64).eps)

RANK_TOLERANCE = 1e-6
"""Singular values below this share of the largest one count as zero."""


def validate_priors(priors: ArrayLike, *, classes: Sequence[str] | None = None, where: str = "class priors") -> Matrix:
    """Return priors as a float64 matrix whose rows sum to one.

    Parameters
    ----------
    priors : array-like of shape (M, K)
        Proportions; rows may deviate from sum one by rounding.
    classes : sequence of str, optional
        Names of the classes, to check the number of columns.
    where : str
        What the matrix is, for messages.

    Raises
    ------
    InputError
        If the values are not proportions; the message names the row.

    Examples
    --------
    >>> validate_priors([[0.2, 0.8004], [1, 0]]).sum(axis=1)
    array([1., 1.])
    """
    matrix = _numbers(priors, 2, where, "one row per set and one column per class")
    if classes is not None and matrix.shape[1] != len(classes):
        raise wrong_columns_error(matrix, classes, where)
    # All rows at once, because a federation may have ten thousand clients; only a wrong matrix is searched by row.
    if not (matrix.min() >= 0 and matrix.max() <= 1 + SUM_TOLERANCE and _sum_to_one(matrix.sum(axis=1)).all()):
        raise next(problem for m, row in enumerate(matrix, 1) if (problem := _problem(row, f"{where}: row {m}")))
    return _normalised(matrix)


def wrong_columns_error(matrix: Matrix, classes: Sequence[str], where: str) -> InputError:
    """Return an error for a matrix whose number of columns is not the number of classes."""
    return InputError(
        f"{where}: {counted(matrix.shape[1], 'column')} for {len(classes)} classes; give one column for each of "
        f"{', '.join(classes)}."
    )


def _sum_to_one(sums: Matrix) -> NDArray[np.bool_]:
    return np.abs(sums - 1) <= SUM_TOLERANCE


def _problem(row: Matrix, where: str) -> InputError | None:
    if not np.isfinite(row).all():
        return InputError(f"{where} has a value that is missing or infinite; give one in 0..1.")
    if (row < 0).any():
        return InputError(f"{where} has a negative value ({row.min():g}); give values in 0..1.")
    if (row > 1 + SUM_TOLERANCE).any():
        return InputError(
            f"{where} has a value above 1 ({row.max():g}); give proportions in 0..1, not percentages or counts."
        )
    if _sum_to_one(row.sum()):
        return None
    return InputError(
        f"{where} sums to {row.sum():.6g}, not to 1 (tolerance {SUM_TOLERANCE:g}); give proportions that sum to one."
    )


def validate_class_mix(prior: ArrayLike, classes: Sequence[str], *, where: str = "prior") -> Matrix:
    """Return a class mix (K,) as proportions that sum to one; InputError if it is something else.

    Parameters are those of `validate_priors`, for a single row without a set.
    """
    row = _numbers(prior, 1, where, f"one proportion for each of {', '.join(classes)}")
    if len(row) != len(classes):
        raise wrong_columns_error(row[None], classes, where)
    if problem := _problem(row, f"{where}:"):
        raise problem
    vector: Matrix = _normalised(row[None])[0]
    return vector


def validate_test_prior(prior: ArrayLike, classes: Sequence[str], *, where: str = "test prior") -> Matrix:
    """Return a test prior pi (K,), positive and summing to one; InputError if it is something else."""
    vector = validate_class_mix(prior, classes, where=where)
    if (vector <= 0).any():
        name = classes[int(np.argmin(vector))]
        raise InputError(f"{where}: class '{name}' has share 0; give it a positive share or drop the class.")
    return vector


def sample_priors(recipe: str, sets: int, classes: int, generator: np.random.Generator) -> Matrix:
    """Return random class priors (sets, classes): `text` as in the paper's text, `boosted` as in its published code.

    Examples
    --------
    >>> sample_priors("boosted", 3, 2, np.random.default_rng(0)).round(2)
    array([[0.95, 0.05],
           [0.11, 0.89],
           [0.9 , 0.1 ]])
    """
    if recipe == "text":  # "uniformly from [0.1, 0.9], then regularised"
        matrix = generator.uniform(0.1, 0.9, (sets, classes))
    elif recipe == "boosted":  # one class per set is ten times as common
        matrix = generator.uniform(0.1, 1.0, (sets, classes))
        matrix[np.arange(sets), np.arange(sets) % classes] *= 10
    else:
        raise unknown_name("prior recipe", recipe, PRIOR_RECIPES)
    return _normalised(matrix)


def perturb_priors(
    priors: Matrix, epsilon: float, generator: np.random.Generator, *, formula: str = "intended"
) -> Matrix:
    """Return noisy priors: entries times random factors, clipped to 0..1, rows normalised.

    `printed` is the paper's formula pi ((2 eps - 1) gamma + 1), gamma ~ U(0, 1). It is free of noise at eps = 0.5 and
    not at eps = 0, which the paper calls clean; `intended` is what it presumably means, pi (1 + eps (2 gamma - 1)).
    """
    if not 0 <= epsilon < np.inf:
        raise InputError(f"noise of class priors: epsilon is {epsilon:g}; give a number from 0 upwards.")
    gamma = generator.uniform(0, 1, priors.shape)
    if formula == "intended":
        factor = 1 + epsilon * (2 * gamma - 1)
    elif formula == "printed":
        factor = (2 * epsilon - 1) * gamma + 1
    else:
        raise unknown_name("noise formula", formula, NOISE_FORMULAS)
    noisy = np.clip(priors * factor, 0, 1)
    # At eps > 1 all entries of a row may be clipped to zero: such a row becomes uniform.
    noisy[noisy.sum(axis=1) == 0] = 1 / priors.shape[1]
    return _normalised(noisy)


@dataclass(frozen=True)
class PriorDiagnosis:
    """How well the priors of one client separate the classes.

    Parameters
    ----------
    sets, classes, rank : int
        Shape (M, K) and rank of the priors.
    smallest_singular_value, condition : float
        Smallest of the K singular values, and condition number (infinity if the rank is below K).
    """

    sets: int
    classes: int
    rank: int
    smallest_singular_value: float
    condition: float

    @property
    def sufficient(self) -> bool:
        """Whether this client alone determines the classifier (full column rank, Lemma 2)."""
        return self.rank == self.classes


def diagnose_priors(priors: Matrix) -> PriorDiagnosis:
    """Return rank, smallest singular value and condition number of one client's priors.

    Examples
    --------
    >>> diagnose_priors(np.eye(3))
    PriorDiagnosis(sets=3, classes=3, rank=3, smallest_singular_value=1.0, condition=1.0)
    """
    sets, classes = priors.shape
    values = np.zeros(classes)
    values[: min(sets, classes)] = np.linalg.svd(priors, compute_uv=False)
    rank = int((values > RANK_TOLERANCE * values[0]).sum())
    condition = values[0] / values[-1] if rank == classes else np.inf
    return PriorDiagnosis(sets, classes, rank, float(values[-1]), float(condition))


def joint_rank(federation: Sequence[Matrix], *, draws: int = 3) -> int:
    """Return how many of the K - 1 free directions of a class posterior all clients together determine.

    Normalising Q leaves every client one free scale for each input, so a stacked Pi of rank K is not enough.
    With v > 0 generic and a_c = Pi_c v / |Pi_c v|, the clients determine rank(stack of (I - a_c a_c^T) Pi_c)
    directions. If all K - 1 are determined, then every posterior is determined where one client alone has rank K,
    and otherwise almost every one (all but a set of measure zero, near which the problem is ill-conditioned).

    `federation` holds the class priors (M, K) of each client, `draws` is the number of random vectors v.

    Examples
    --------
    >>> joint_rank([np.eye(3)])
    2
    >>> joint_rank([np.array([[0.8, 0.2]]), np.array([[0.1, 0.9]])])  # one set each: nothing to compare
    0
    """
    generator = np.random.default_rng(0)
    classes = federation[0].shape[1]
    best = 0
    for _ in range(draws):  # a generic v attains the largest rank; a few draws guard against an unlucky one
        v = generator.uniform(0.5, 1.5, classes)
        triangle = np.zeros((0, classes))
        for _, priors in _group_by_sets(federation):
            directions = priors @ v  # (C, M)
            directions /= np.linalg.norm(directions, axis=1, keepdims=True)
            along = np.einsum("cm,cmk->ck", directions, priors)
            projected = priors - directions[:, :, None] * along[:, None, :]  # (C, M, K), zero along v
            # Scaled per client, so that a client that is sufficient alone stays so with others. The triangular factor
            # has the singular values of the stack, and only K rows for any number of clients.
            scaled = projected / _singular_values(priors)[:, :1, None]
            triangle = np.linalg.qr(np.vstack([triangle, scaled.reshape(-1, classes)])).R
            best = max(best, int((np.linalg.svd(triangle, compute_uv=False) > RANK_TOLERANCE).sum()))
            if best == classes - 1:  # further clients only add directions
                return best
    return best


def prior_ranks(federation: Sequence[Matrix]) -> NDArray[np.int64]:
    """Return the rank of every client's priors, as `diagnose_priors` computes it."""
    ranks = np.zeros(len(federation), np.int64)
    for clients, priors in _group_by_sets(federation):
        values = _singular_values(priors)
        ranks[clients] = (values > RANK_TOLERANCE * values[:, :1]).sum(axis=1)
    return ranks


STACKED_ENTRIES = 2**16
"""Largest number of entries of class priors that are stacked."""


def _group_by_sets(federation: Sequence[Matrix]) -> Iterator[tuple[NDArray[np.int64], Matrix]]:
    """Yield clients with the same number of sets: their numbers (C,) and their priors (C, M, K)."""
    sets = np.array([len(priors) for priors in federation])
    for count in np.unique(sets):
        clients = np.flatnonzero(sets == count)
        size = max(1, STACKED_ENTRIES // federation[clients[0]].size)
        for first in range(0, len(clients), size):
            some = clients[first : first + size]
            yield some, np.stack([federation[c] for c in some])


def _singular_values(priors: Matrix) -> Matrix:
    """(C, min(M, K)), largest first."""
    return np.linalg.svd(priors, compute_uv=False).astype(np.float64, copy=False)


def class_information(priors: Matrix, set_priors: Matrix) -> float:
    """Return I(class; set) / H(class), the share of the information of a label that the set of a row carries.

    Examples
    --------
    >>> halves = np.array([0.5, 0.5])
    >>> class_information(np.eye(2), halves), class_information(np.full((2, 2), 0.5), halves)
    (1.0, 0.0)
    """
    joint = set_priors[:, None] * priors  # (M, K)
    mix = joint.sum(axis=0)
    class_entropy = _entropy(mix)
    if class_entropy < 1e-12:  # only one class, up to rounding
        return 0.0
    mutual = class_entropy + _entropy(set_priors) - _entropy(joint.ravel())
    return float(np.clip(mutual / class_entropy, 0, 1))


def _entropy(p: Matrix) -> float:
    positive = p[p > 0]
    return float(-(positive * np.log(positive)).sum())


def _numbers(values: ArrayLike, dimensions: int, where: str, wanted: str) -> Matrix:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{where}: not a table of numbers; give {wanted}.") from None
    if array.ndim != dimensions or array.size == 0:
        raise InputError(f"{where}: got shape {array.shape}; give {wanted}.")
    return array


def _normalised(matrix: Matrix) -> Matrix:
    """Return rows that sum to one; rows that already do, up to rounding, are unchanged (so it is idempotent)."""
    sums = matrix.sum(axis=1, keepdims=True)
    sums[np.abs(sums - 1) <= matrix.shape[1] * ROUNDING] = 1.0
    normalised: Matrix = matrix / sums
    return normalised
