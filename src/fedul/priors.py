"""Class-prior matrices Pi (M x K): row m says how common each of the K classes is in set m.

They are validated, sampled as the paper's text or its published code does, perturbed, and diagnosed.
Lu et al., Federated Learning from Only Unlabeled Data with Class-Conditional-Sharing Clients, ICLR 2022.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedul.errors import InputError, unknown

Matrix = NDArray[np.float64]

SUM_TOLERANCE = 1e-3
"""How far a row's sum may be from one (published figures are rounded) before it is refused."""

ROUNDING = float(np.finfo(np.float64).eps)

RANK_TOLERANCE = 1e-6
"""Directions weaker than this share of a client's strongest one are rounding, not information."""


def validate(priors: ArrayLike, *, classes: Sequence[str] | None = None, where: str = "class priors") -> Matrix:
    """The priors as a float64 matrix whose rows sum to one; an InputError names the row that is wrong.

    >>> validate([[0.2, 0.8004], [1, 0]]).sum(axis=1)
    array([1., 1.])
    """
    matrix = _numbers(priors, 2, where, "one row a set and one column a class")
    if classes is not None and matrix.shape[1] != len(classes):
        raise wrong_columns(matrix, classes, where)
    # All rows at once, since a federation may have ten thousand tables; only a wrong one is looked at row by row.
    if not (matrix.min() >= 0 and matrix.max() <= 1 + SUM_TOLERANCE and _fine(matrix.sum(axis=1)).all()):
        raise next(problem for m, row in enumerate(matrix, 1) if (problem := _problem(row, f"{where}: row {m}")))
    return _normalised(matrix)


def wrong_columns(matrix: Matrix, classes: Sequence[str], where: str) -> InputError:
    return InputError(
        f"{where}: {matrix.shape[1]} columns for {len(classes)} classes; give one column for each of "
        f"{', '.join(classes)}."
    )


def _fine(sums: Matrix) -> NDArray[np.bool_]:
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
    if _fine(row.sum()):
        return None
    return InputError(
        f"{where} sums to {row.sum():.6g}, not to 1 (tolerance {SUM_TOLERANCE:g}); give proportions that sum to one."
    )


def validate_mix(prior: ArrayLike, classes: Sequence[str], *, where: str = "prior") -> Matrix:
    """A class mix (K,): shares that sum to one."""
    row = _numbers(prior, 1, where, f"one proportion for each of {', '.join(classes)}")
    if len(row) != len(classes):
        raise wrong_columns(row[None], classes, where)
    if problem := _problem(row, f"{where}:"):
        raise problem
    vector: Matrix = _normalised(row[None])[0]
    return vector


def validate_test_prior(prior: ArrayLike, classes: Sequence[str], *, where: str = "test prior") -> Matrix:
    """The test prior pi (K,): positive and summing to one."""
    vector = validate_mix(prior, classes, where=where)
    if (vector <= 0).any():
        name = classes[int(np.argmin(vector))]
        raise InputError(f"{where}: class '{name}' has share 0; give it a positive share or drop the class.")
    return vector


RECIPES = ("boosted", "text")


def sample(recipe: str, sets: int, classes: int, generator: np.random.Generator) -> Matrix:
    """Random class priors: `text` as the paper words it, `boosted` as its published code does.

    >>> sample("boosted", 3, 2, np.random.default_rng(0)).round(2)
    array([[0.95, 0.05],
           [0.11, 0.89],
           [0.9 , 0.1 ]])
    """
    if recipe == "text":  # "uniformly from [0.1, 0.9], then regularised"
        matrix = generator.uniform(0.1, 0.9, (sets, classes))
    elif recipe == "boosted":  # one class a set is made ten times as common
        matrix = generator.uniform(0.1, 1.0, (sets, classes))
        matrix[np.arange(sets), np.arange(sets) % classes] *= 10
    else:
        raise unknown("prior recipe", recipe, RECIPES)
    return _normalised(matrix)


NOISE_FORMULAS = ("intended", "printed")


def perturb(priors: Matrix, epsilon: float, generator: np.random.Generator, *, formula: str = "intended") -> Matrix:
    """Priors known only roughly: entries times random factors, clipped to 0..1, rows made to sum to one.

    `printed` is the paper's formula pi ((2 eps - 1) gamma + 1), gamma ~ U(0, 1). It is clean at eps = 0.5 and
    not at eps = 0, which the paper calls clean; `intended` is what it presumably means,
    pi (1 + eps (2 gamma - 1)).
    """
    if not 0 <= epsilon < np.inf:
        raise InputError(f"noise of class priors: epsilon is {epsilon:g}; give a number from 0 upwards.")
    gamma = generator.uniform(0, 1, priors.shape)
    if formula == "intended":
        factor = 1 + epsilon * (2 * gamma - 1)
    elif formula == "printed":
        factor = (2 * epsilon - 1) * gamma + 1
    else:
        raise unknown("noise formula", formula, NOISE_FORMULAS)
    noisy = np.clip(priors * factor, 0, 1)
    # At eps > 1 every entry of a row may be clipped to zero: such a row says nothing any more.
    noisy[noisy.sum(axis=1) == 0] = 1 / priors.shape[1]
    return _normalised(noisy)


@dataclass(frozen=True)
class Diagnosis:
    """How well one client's priors tell the classes apart."""

    sets: int
    classes: int
    rank: int
    smallest_singular_value: float
    condition: float

    @property
    def sufficient(self) -> bool:
        """Whether this client alone determines the classifier (Lemma 2: full column rank)."""
        return self.rank == self.classes


def diagnose(priors: Matrix) -> Diagnosis:
    """Rank, smallest of the K singular values, and condition number of one client's priors.

    >>> diagnose(np.eye(3))
    Diagnosis(sets=3, classes=3, rank=3, smallest_singular_value=1.0, condition=1.0)
    """
    sets, classes = priors.shape
    values = np.zeros(classes)
    found = np.linalg.svd(priors, compute_uv=False)
    values[: len(found)] = found
    rank = int((values > RANK_TOLERANCE * values[0]).sum())
    condition = values[0] / values[-1] if rank == classes else np.inf
    return Diagnosis(sets, classes, rank, float(values[-1]), float(condition))


def joint_rank(federation: Sequence[Matrix], *, draws: int = 3) -> int:
    """How many of the K - 1 free directions of a class posterior all clients together determine.

    Normalising Q leaves every client one free scale for each input, so a stacked Pi of rank K is not enough.
    With v > 0 generic and a_c = Pi_c v / |Pi_c v|, the clients determine rank(stack of (I - a_c a_c^T) Pi_c)
    directions. K - 1 is all of them: every posterior is then determined if one client has rank K by itself,
    else almost every one (all but a set of measure zero, near which the answer is ill-conditioned).

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
        for _, priors in _alike(federation):
            directions = priors @ v  # (C, M)
            directions /= np.linalg.norm(directions, axis=1, keepdims=True)
            along = np.einsum("cm,cmk->ck", directions, priors)
            projected = priors - directions[:, :, None] * along[:, None, :]  # (C, M, K), zero along v
            # On its own scale, so that who is sufficient alone stays so in company. The triangular factor
            # has the singular values of the stack, and only K rows however many clients there are.
            scaled = projected / _singular_values(priors)[:, :1, None]
            triangle = np.linalg.qr(np.vstack([triangle, scaled.reshape(-1, classes)])).R
            best = max(best, int((np.linalg.svd(triangle, compute_uv=False) > RANK_TOLERANCE).sum()))
            if best == classes - 1:  # further clients add directions and take none away
                return best
    return best


def ranks(federation: Sequence[Matrix]) -> NDArray[np.int64]:
    """The rank of every client's priors, as `diagnose` finds it."""
    found = np.zeros(len(federation), np.int64)
    for clients, priors in _alike(federation):
        values = _singular_values(priors)
        found[clients] = (values > RANK_TOLERANCE * values[:, :1]).sum(axis=1)
    return found


ALIKE = 2**16
"""Entries of class priors that are put together at once."""


def _alike(federation: Sequence[Matrix]) -> Iterator[tuple[NDArray[np.int64], Matrix]]:
    """Clients with equally many sets, together: their numbers (C,) and their priors (C, M, K)."""
    sets = np.array([len(priors) for priors in federation])
    for count in np.unique(sets):
        clients = np.flatnonzero(sets == count)
        size = max(1, ALIKE // federation[clients[0]].size)
        for first in range(0, len(clients), size):
            some = clients[first : first + size]
            yield some, np.stack([federation[c] for c in some])


def _singular_values(priors: Matrix) -> Matrix:
    """(C, min(M, K)), largest first."""
    return np.linalg.svd(priors, compute_uv=False).astype(np.float64, copy=False)


def is_identifiable(federation: Sequence[Matrix]) -> bool:
    """Whether all clients' priors together determine the classifier (almost everywhere: see joint_rank)."""
    classes: int = federation[0].shape[1]
    return joint_rank(federation) == classes - 1


def information(priors: Matrix, set_priors: Matrix) -> float:
    """I(class; set) / H(class): the share of a label's information that the index of a row's set carries.

    >>> information(np.eye(2), np.array([0.5, 0.5])), information(np.full((2, 2), 0.5), np.array([0.5, 0.5]))
    (1.0, 0.0)
    """
    joint = set_priors[:, None] * priors  # (M, K)
    mix = joint.sum(axis=0)
    class_entropy = _entropy(mix)
    if class_entropy < 1e-12:  # one class only, up to rounding: no information to have a share of
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
    """Rows that sum to one; those that do already, up to rounding, keep their bits (so twice is once)."""
    sums = matrix.sum(axis=1, keepdims=True)
    sums[np.abs(sums - 1) <= matrix.shape[1] * ROUNDING] = 1.0
    normalised: Matrix = matrix / sums
    return normalised
