"""Rows of every client as a classifier that never saw them judged them: all that an evaluation without labels needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedul import priors as prior_tools
from fedul.errors import InputError
from fedul.inputs import Index
from fedul.priors import Matrix

WHOLE = 1e-6
"""How far a class count may be from a whole number, as a share of its set's rows, to be taken for one."""


@dataclass(frozen=True, eq=False)
class JudgedClient:
    """One client's rows. A row that is in several sets stands here once for each."""

    name: str
    set_names: Sequence[str]
    priors: Matrix  # (M, K)
    sets: Index  # (n,): the set of each row
    rows: Index  # (n,): a number that a row has in all its sets, of all clients
    probabilities: Matrix  # (n, K), under the test prior, by a model that did not see the row
    features: Matrix  # (n, d): a few figures that describe a row
    exact: bool  # the priors are the class shares of just these rows

    def __post_init__(self) -> None:
        count, (sets, classes) = len(self.sets), self.priors.shape
        if self.probabilities.shape != (count, classes) or len(self.rows) != count or len(self.features) != count:
            raise InputError(
                f"client '{self.name}': {count} set numbers need as many rows, features and "
                f"probabilities of {classes} classes."
            )
        if count and not (self.sets.min() >= 0 and self.sets.max() < sets):
            raise InputError(f"client '{self.name}': set numbers must lie in 0..{sets - 1}.")
        # Half precision sums to one within 1e-3; a negated form would let values through that are no numbers.
        if count and not (self.probabilities.min() >= 0 and np.abs(self.probabilities.sum(1) - 1).max() < 1e-2):
            raise InputError(f"client '{self.name}': probabilities must be in 0..1 and sum to one in every row.")


@dataclass(frozen=True, eq=False)
class Judged:
    """All clients' judged rows, and what the clients agree on."""

    clients: Sequence[JudgedClient]
    classes: Sequence[str]
    test_prior: Matrix  # (K,)
    draw_priors: Callable[[np.random.Generator], list[Matrix]] | None = None
    """Priors known only roughly: class priors of all clients as they might be, another draw at every call."""

    def __post_init__(self) -> None:
        prior = prior_tools.validate_test_prior(self.test_prior, tuple(self.classes))
        object.__setattr__(self, "test_prior", prior)
        if not any(len(client.sets) for client in self.clients):
            raise InputError("there is no row to judge; give clients with rows in their sets.")
        for client in self.clients:
            if client.priors.shape[1] != len(self.classes):
                where = f"class priors of client '{client.name}'"
                raise prior_tools.wrong_columns(client.priors, tuple(self.classes), where)


def are_class_shares(priors: Matrix, sets: Index) -> bool:
    """Whether the priors times the sets' rows are whole numbers: class counts of just these rows.

    >>> are_class_shares(np.array([[0.5, 0.5], [0.25, 0.75]]), np.array([0, 0, 1, 1, 1, 1]))
    True
    >>> are_class_shares(np.array([[0.5, 0.5], [0.25, 0.75]]), np.array([0, 0, 1, 1, 1]))
    False
    """
    rows = np.bincount(sets, minlength=len(priors))[:, None]
    counts = rows * priors
    return bool((np.abs(counts - counts.round()) <= WHOLE * rows).all())
