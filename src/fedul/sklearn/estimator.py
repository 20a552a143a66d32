"""`FedULClassifier`: fedul.train behind scikit-learn's fit and predict, for tables of numbers."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import fields
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from fedul.config import TrainConfig
from fedul.errors import InputError
from fedul.federation import Federation, UnlabeledSets, pooled_mix
from fedul.models import Model
from fedul.sklearn.scoring import ROUTED, set_log_likelihoods
from fedul.sklearn.sets import SetPriors, by_class, clients_of
from fedul.training import train


class FedULClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier from rows without labels, of which it is known how common each class is in each set.

    Parameters are those of `fedul.TrainConfig`, and
    - `test_prior`: class mix of the population it is for: None or "uniform", "natural" (the mix of the rows it is
      fitted to), a mapping {class: share}, or shares in the order of `classes_`;
    - `held_out`: share of every set by which the best round is chosen; if it is 0, the last round is taken;
    - `classes`: names of the classes, where the columns of the priors have none;
    - `standardize`: bring every column to mean 0 and deviation 1 first; a pipeline with a scaler needs it not;
    - `force`: train even where the priors cannot tell the classes apart.

    Fitted, it has `classes_` (sorted), `classifier_` (the `fedul.Classifier` of standardised rows), `scaler_`,
    `history_` (the figures of every round), `selected_round_` and `n_iter_`.

    >>> x = np.repeat([[-1.0], [1.0], [-1.0], [1.0]], [90, 10, 20, 80], axis=0)
    >>> month = np.repeat(["may", "june"], 100)
    >>> priors = {"may": {"ill": 0.9, "well": 0.1}, "june": {"ill": 0.2, "well": 0.8}}
    >>> FedULClassifier(rounds=5).fit(x, sets=month, priors=priors).predict([[-1.0], [1.0]])
    array(['ill', 'well'], dtype='<U4')
    """

    __metadata_request__fit: ClassVar[dict[str, Any]] = ROUTED
    __metadata_request__score: ClassVar[dict[str, Any]] = ROUTED

    def __init__(
        self,
        model: Model = TrainConfig.model,
        *,
        method: str = TrainConfig.method,
        method_option: Mapping[str, Any] = TrainConfig.method_option,
        algorithm: str = TrainConfig.algorithm,
        algorithm_option: Mapping[str, Any] = TrainConfig.algorithm_option,
        loss: str | None = TrainConfig.loss,
        rounds: int = TrainConfig.rounds,
        epochs: int = TrainConfig.epochs,
        batch_size: int | str = TrainConfig.batch_size,
        optimizer: str = TrainConfig.optimizer,
        learning_rate: float = TrainConfig.learning_rate,
        momentum: float = TrainConfig.momentum,
        l1: float = TrainConfig.l1,
        averaging: float = TrainConfig.averaging,
        participation: float = TrainConfig.participation,
        device: str = TrainConfig.device,
        test_prior: str | Mapping[Any, float] | ArrayLike | None = None,
        held_out: float = 0.2,
        classes: Sequence[Any] | None = None,
        standardize: bool = True,
        force: bool = False,
        random_state: int | np.random.RandomState | None = TrainConfig.seed,
    ) -> None:
        self.model = model
        self.method = method
        self.method_option = method_option
        self.algorithm = algorithm
        self.algorithm_option = algorithm_option
        self.loss = loss
        self.rounds = rounds
        self.epochs = epochs
        self.batch_size = batch_size
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.l1 = l1
        self.averaging = averaging
        self.participation = participation
        self.device = device
        self.test_prior = test_prior
        self.held_out = held_out
        self.classes = classes
        self.standardize = standardize
        self.force = force
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, *, sets: Any = None, priors: Any = None, clients: Any = None) -> Self:
        """Trains on rows X (n, d) whose set is known, not their class.

        `sets` and `clients` name the set and the client of each row; without clients, all rows are one client's.
        `priors` are the class priors of the sets: a data frame indexed by set or by (client, set) with a column for
        each class, a mapping {set: {class: share}}, or an array whose rows are the sets 0, 1, 2, ... Priors of sets
        without rows are ignored. Labels `y`, if there are any, are given instead: each class is then a set of its own.
        """
        if _by_labels(y, sets, priors):
            X, y = validate_data(self, X, y, dtype=FLOATS)
            check_classification_targets(y)
            known, sets = SetPriors.of_labels(y), y
        else:
            X = validate_data(self, X, dtype=FLOATS)
            known = SetPriors.read(priors, self.classes)
        scaler = StandardScaler().fit(X) if self.standardize else None
        seed = self._seed()
        owners = clients_of(_scaled(X, scaler), sets, clients, known, held_out=self.held_out, seed=seed)
        federation = Federation(owners, [str(name) for name in known.classes], self._test_prior(known, owners))
        run = train(
            federation,
            model=self.model,
            force=self.force,
            select=TrainConfig.select if any(len(client.held_out) for client in owners) else "last",
            seed=seed,
            **{name: value for name, value in self.get_params(deep=False).items() if name in SETTINGS},
        )
        self.scaler_ = scaler
        self.classes_ = known.classes
        self.classifier_ = run.classifier
        self.history_ = run.history
        self.selected_round_ = run.selected_round
        self.n_iter_ = len(run.history)
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities (n, K) of the classes, in the order of `classes_`."""
        check_is_fitted(self, "classifier_")
        X = validate_data(self, X, reset=False, dtype=FLOATS)
        return self.classifier_.predict_proba(_scaled(X, self.scaler_))

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each row (n,)."""
        most = self.predict_proba(X).argmax(axis=1)
        names: NDArray[Any] = self.classes_[most]
        return names

    def score(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        sets: Any = None,
        priors: Any = None,
        clients: Any = None,
    ) -> float:
        """Without labels, the mean of log Q: the log-probability of the set that each row is in; with `y`, accuracy.

        Higher is better in both. Sets, priors and clients are given as to `fit`.
        """
        if _by_labels(y, sets, priors):
            return float(super().score(X, y, sample_weight))
        # Q is the same whatever population the classifier was moved to, but only the trained prior has no zeros.
        check_is_fitted(self, "classifier_")
        prior = self.classifier_.trained_prior
        probabilities = self.with_prior(prior).predict_proba(X)
        known = SetPriors.read(priors, self.classes)
        if not np.array_equal(known.classes, self.classes_):
            raise InputError("class priors: are not of the classes that the classifier was fitted to; give the same.")
        owners = clients_of(probabilities, sets, clients, known)
        return float(np.average(set_log_likelihoods(probabilities, prior, owners), weights=sample_weight))

    def with_prior(self, prior: Any) -> FedULClassifier:
        """The same classifier for a population with another class mix, in closed form."""
        check_is_fitted(self, "classifier_")
        moved = copy.copy(self)
        moved.classifier_ = self.classifier_.with_prior(by_class(prior, self.classes_, "prior"))
        return moved

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = False
        return tags

    def _seed(self) -> int:
        if isinstance(self.random_state, Integral):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _test_prior(self, known: SetPriors, owners: Sequence[UnlabeledSets]) -> Any:
        given = self.test_prior
        if given is None or (isinstance(given, str) and given == "uniform"):
            return None
        if isinstance(given, str) and given == "natural":
            return pooled_mix(owners)
        in_order = self.classes is None or list(self.classes) == known.classes.tolist()
        if not hasattr(given, "items") and not in_order:
            raise InputError("test_prior: classes are sorted, so it is unclear which is whose; give {class: share}.")
        return by_class(given, known.classes, "test_prior")


SETTINGS = {f.name for f in fields(TrainConfig)} - {"model", "seed", "select"}
"""The parameters that go to `fedul.train` as they are."""

FLOATS = (np.float64, np.float32)
"""Rows of the one kind stay as they are; others become the first."""


def _scaled(X: NDArray[Any], scaler: Any) -> NDArray[np.float32]:
    """What the network sees. Means and deviations are taken off in the precision of the rows, before it is lost."""
    scaled = X if scaler is None else scaler.transform(X)
    with np.errstate(over="ignore"):  # beyond float32 is infinite, which is refused with the row's number
        return np.asarray(scaled, dtype=np.float32)


def _by_labels(y: Any, sets: Any, priors: Any) -> bool:
    """Whether rows come with labels, rather than with sets and the class priors of these."""
    if y is not None and sets is None and priors is None:
        return True
    if y is None and sets is not None and priors is not None:
        return False
    if y is not None:
        raise InputError("give labels y, or sets and priors, not both.")
    missing = "priors" if sets is not None else "sets" if priors is not None else "sets and priors"
    raise InputError(
        f"{missing}: not given; name the set of each row and the class priors of the sets (in a grid search, first "
        "sklearn.set_config(enable_metadata_routing=True)), or give labels y."
    )
