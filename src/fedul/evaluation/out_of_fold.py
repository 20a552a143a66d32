"""Out-of-fold predictions: all that an evaluation without labels needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedul.core import Index, Matrix
from fedul.core import priors as prior_tools
from fedul.errors import InputError


@dataclass(frozen=True, eq=False)
class Standardization:
    """Standardization of the log-odds that a model predicts, by its predictions for reference rows.

    Models of different folds then have comparable scores. Log-odds beyond the outer percentiles are clipped.
    """

    low: Matrix  # (K,)
    high: Matrix  # (K,)
    mean: Matrix  # (K,)
    deviation: Matrix  # (K,)

    @classmethod
    def of(cls, probabilities: Matrix) -> Standardization:
        """Return the standardization by these predictions (n, K)."""
        if not len(probabilities):
            none = np.zeros(probabilities.shape[1])
            return cls(none, none, none, none + 1)
        logits = _log_odds(probabilities)
        low, high = np.quantile(logits, [0.01, 0.99], axis=0)
        logits = logits.clip(low, high)
        return cls(low, high, logits.mean(axis=0), np.maximum(logits.std(axis=0), 1e-9))

    def __call__(self, probabilities: Matrix) -> Matrix:
        """Return the scores (n, K) of predictions."""
        scores: Matrix = (_log_odds(probabilities).clip(self.low, self.high) - self.mean) / self.deviation
        return scores


def _log_odds(probabilities: Matrix) -> Matrix:
    inside = probabilities.clip(1e-9, 1 - 1e-9)
    odds: Matrix = np.log(inside / (1 - inside))
    return odds


@dataclass(frozen=True, eq=False)
class ClientPredictions:
    """Predictions for the rows of one client. A row that is in several sets is listed once for each."""

    name: str
    set_names: Sequence[str]
    priors: Matrix  # (M, K)
    sets: Index  # (n,): the set of each row
    rows: Index  # (n,): number of the row, the same in all its sets and at all clients
    probabilities: Matrix  # (n, K), under the test prior, by a model that was not trained on the row
    features: Matrix  # (n, d): a few numbers that describe a row
    exact: bool  # whether the priors are declared to be the class shares of exactly these rows
    scores: Matrix | None = None
    """(n, K): log-odds of the classes, standardized in the same way for all models; None if there is one model."""
    model_variance: Matrix | None = None
    """(M, K): variance of the mean score of a set over models that were trained on it; None if there is one model."""
    folds: Index | None = None
    """(M,): number of the model that predicts a set, -1 if there are several; None if there is one model."""
    sampling: float | None = None  # variance of class shares of the rows around the priors, in multinomial units
    rounding: float = 0.0  # largest rounding error of a share

    def __post_init__(self) -> None:
        count, (sets, classes) = len(self.sets), self.priors.shape
        if self.probabilities.shape != (count, classes) or len(self.rows) != count or len(self.features) != count:
            raise InputError(
                f"client '{self.name}': {count} set numbers need as many rows, features and "
                f"probabilities of {classes} classes."
            )
        if count and not (self.sets.min() >= 0 and self.sets.max() < sets):
            raise InputError(f"client '{self.name}': set numbers must lie in 0..{sets - 1}.")
        # Half precision sums to one within 1e-3. Not negated, because comparisons with NaN are false.
        if count and not (self.probabilities.min() >= 0 and np.abs(self.probabilities.sum(1) - 1).max() < 1e-2):
            raise InputError(f"client '{self.name}': probabilities must be in 0..1 and sum to one in every row.")

    @property
    def share_variance(self) -> float:
        """Variance of the class shares of the rows around the priors; by default 0 for exact priors, else 1."""
        return (0.0 if self.exact else 1.0) if self.sampling is None else self.sampling


@dataclass(frozen=True, eq=False)
class OutOfFoldPredictions:
    """Predictions for the rows of all clients, each by a model that was not trained on the row."""

    clients: Sequence[ClientPredictions]
    classes: Sequence[str]
    test_prior: Matrix  # (K,)
    draw_priors: Callable[[np.random.Generator], list[Matrix]] | None = None
    """For uncertain priors: draws plausible class priors of all clients, others at every call."""

    columns: Sequence[str] = ()
    """Column of a table that each feature belongs to; empty where rows are not those of a table."""

    def __post_init__(self) -> None:
        prior = prior_tools.validate_test_prior(self.test_prior, tuple(self.classes))
        object.__setattr__(self, "test_prior", prior)
        if not any(len(client.sets) for client in self.clients):
            raise InputError("there are no rows to evaluate; give clients with rows in their sets.")
        for client in self.clients:
            if client.priors.shape[1] != len(self.classes):
                where = f"class priors of client '{client.name}'"
                raise prior_tools.wrong_columns_error(client.priors, tuple(self.classes), where)
