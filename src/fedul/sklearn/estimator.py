"""`FedULClassifier`: `fedul.train` as a scikit-learn estimator, for arrays of numbers and for DataFrames."""

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

from fedul.algorithms.base import Algorithm
from fedul.config import TrainConfig
from fedul.core import Federation, PriorScope, Study
from fedul.errors import InputError
from fedul.methods.base import Method
from fedul.models import Model
from fedul.sklearn.frames import encode_frame, infer_frame_schema, needs_schema
from fedul.sklearn.scoring import ROUTED, set_log_likelihoods
from fedul.sklearn.sets import PriorsByName, has_labels, make_clients, order_by_class, resolve_test_prior
from fedul.training import Callback
from fedul.training.train import train

SETTINGS = {f.name for f in fields(TrainConfig)} - {"model", "seed", "select"}
"""Parameters that are passed to `fedul.train` as they are."""

FLOATS = (np.float64, np.float32)
"""Types of numbers that are kept; others become the first."""


class FedULClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier learned from rows without labels, given how common each class is in each set of rows.

    Parameters
    ----------
    model : str, nn.Module or callable, default="auto"
        Network: a name, a module, or a factory ``(shape, classes) -> nn.Module``.
    method : str or Method, default="fedul-combined"
        What a client minimises: a name or an object.
    method_option : mapping
        Settings of a method that is given by name.
    algorithm : str or Algorithm, optional
        How client updates become the next global model: a name or an object.
    algorithm_option : mapping
        Settings of an algorithm that is given by name.
    loss, rounds, epochs, batch_size, optimizer, learning_rate, momentum, l1, l2, averaging, participation, device
        See `fedul.TrainConfig`.
    test_prior : str, mapping or array-like, optional
        Class mix of the population that the classifier is for: None or "uniform", "natural" (the mix of the rows it is
        fitted to), a mapping {class: share}, or shares in the order of `classes_`.
    priors_of : {"population", "rows"}, default="population"
        What the class priors speak of: the population that the rows of a set were drawn from, or exactly these rows.
    held_out : float, default=0.2
        Share of every set that is held out to select the best round; with 0, the last round is taken.
    classes : sequence, optional
        Names of the classes, where the columns of the priors have none.
    standardize : bool, default=True
        Whether to bring every column to mean 0 and deviation 1. Not needed in a pipeline with a scaler. Columns of a
        DataFrame with text or missing values are always standardised.
    force : bool, default=False
        Train even if the class priors cannot tell the classes apart.
    callbacks : sequence of Callback
        Called during training. `sklearn.base.clone` copies them, as all parameters.
    random_state : int, RandomState or None, default=0
        Seed of all randomness.

    Attributes
    ----------
    classes_ : ndarray of shape (K,)
        The classes, sorted.
    classifier_ : Classifier
        The trained `fedul.Classifier`, which takes encoded rows.
    scaler_ : StandardScaler or None
        What standardised the columns; None without `standardize`, and for a DataFrame with text or missing values.
    history_ : sequence of RoundMetrics
        Metrics of every round.
    selected_round_ : int
        Round whose classifier was taken.
    n_iter_ : int
        Number of rounds.

    Examples
    --------
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
        method: str | Method = TrainConfig.method,
        method_option: Mapping[str, Any] = TrainConfig.method_option,
        algorithm: str | Algorithm | None = TrainConfig.algorithm,
        algorithm_option: Mapping[str, Any] = TrainConfig.algorithm_option,
        loss: str | None = TrainConfig.loss,
        rounds: int = TrainConfig.rounds,
        epochs: int = TrainConfig.epochs,
        batch_size: int | str = TrainConfig.batch_size,
        optimizer: str | None = TrainConfig.optimizer,
        learning_rate: float | None = TrainConfig.learning_rate,
        momentum: float = TrainConfig.momentum,
        l1: float = TrainConfig.l1,
        l2: float | None = TrainConfig.l2,
        averaging: float = TrainConfig.averaging,
        participation: float = TrainConfig.participation,
        device: str = TrainConfig.device,
        test_prior: str | Mapping[Any, float] | ArrayLike | None = None,
        priors_of: str = PriorScope.of,
        held_out: float = 0.2,
        classes: Sequence[Any] | None = None,
        standardize: bool = True,
        force: bool = False,
        callbacks: Sequence[Callback] = (),
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
        self.l2 = l2
        self.averaging = averaging
        self.participation = participation
        self.device = device
        self.test_prior = test_prior
        self.priors_of = priors_of
        self.held_out = held_out
        self.classes = classes
        self.standardize = standardize
        self.force = force
        self.callbacks = callbacks
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, *, sets: Any = None, priors: Any = None, clients: Any = None) -> Self:
        """Train on rows whose set is known, but not their class.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n, d)
            The rows. A DataFrame may have text, categories and missing values; it is then encoded as `fedul.load` does.
        y : array-like of shape (n,), optional
            Labels, instead of `sets` and `priors`: each class is then a set.
        sets, clients : array-like of shape (n,)
            Name of the set and of the client of each row; without `clients` there is one client.
        priors : DataFrame, mapping or array-like
            Class priors of the sets: a DataFrame indexed by set or by (client, set) with one column per class, a
            mapping {set: {class: share}}, or an array whose rows are the sets 0, 1, 2, ... Those of sets without rows
            are ignored.

        Returns
        -------
        FedULClassifier
            The estimator itself.
        """
        encodes = needs_schema(X)
        if has_labels(y, sets, priors):
            X, y = validate_data(self, X, y, **_checks(encodes))
            check_classification_targets(y)
            known, sets, priors_of = PriorsByName.of_labels(np.asarray(y)), y, "rows"
        else:
            X = validate_data(self, X, **_checks(encodes))
            known, priors_of = PriorsByName.read(priors, self.classes), self.priors_of
        class_names = [str(name) for name in known.classes]
        schema, warnings = infer_frame_schema(X, class_names) if encodes else (None, [])
        scaler = StandardScaler().fit(X) if self.standardize and not encodes else None
        seed = self._seed()
        inputs = _standardize(X, scaler) if schema is None else encode_frame(X, schema)
        owners = make_clients(inputs, sets, clients, known, held_out=self.held_out, seed=seed, priors_of=priors_of)
        test_prior = resolve_test_prior(self.test_prior, known, owners, self.classes)
        federation = Federation(owners, class_names, test_prior, schema=schema)
        settings = {name: value for name, value in self.get_params(deep=False).items() if name in SETTINGS}
        for name in ("method_option", "algorithm_option"):
            if not settings[name]:  # refused beside an object, even if empty
                del settings[name]
        run = train(
            Study(federation, None, warnings=warnings),
            model=self.model,
            force=self.force,
            callbacks=self.callbacks,
            select=None if any(len(client.held_out) for client in owners) else "last",
            seed=seed,
            **settings,
        )
        self.scaler_ = scaler
        self.classes_ = known.classes
        self.classifier_ = run.classifier
        self.history_ = run.history
        self.selected_round_ = run.selected_round
        self.n_iter_ = len(run.history)
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probabilities of the classes.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n, d)
            Rows as in `fit`.

        Returns
        -------
        ndarray of shape (n, K)
            Probabilities in the order of `classes_`.
        """
        check_is_fitted(self, "classifier_")
        schema = self.classifier_.schema
        X = validate_data(self, X, reset=False, **_checks(schema is not None))
        inputs = _standardize(X, self.scaler_) if schema is None else encode_frame(X, schema)
        return self.classifier_.predict_proba(inputs)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of each row."""
        most_probable = self.predict_proba(X).argmax(axis=1)
        classes: NDArray[Any] = self.classes_[most_probable]
        return classes

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
        """Return the accuracy if there are labels, else the mean log-probability of the set that each row is in.

        Higher is better in both. All parameters are as in `fit`.
        """
        if has_labels(y, sets, priors):
            return float(super().score(X, y, sample_weight))
        # Q does not depend on the population that the classifier is for, but only the trained prior has no zeros.
        check_is_fitted(self, "classifier_")
        prior = self.classifier_.trained_prior
        probabilities = self.with_prior(prior).predict_proba(X)
        known = PriorsByName.read(priors, self.classes)
        if not np.array_equal(known.classes, self.classes_):
            raise InputError("class priors: are not of the classes that the classifier was fitted to; give the same.")
        owners = make_clients(probabilities, sets, clients, known)
        return float(np.average(set_log_likelihoods(probabilities, prior, owners), weights=sample_weight))

    def with_prior(self, prior: Any) -> FedULClassifier:
        """Return this classifier for a population with another class mix.

        Parameters
        ----------
        prior : mapping or array-like of shape (K,)
            The class mix: {class: share}, or shares in the order of `classes_`.
        """
        check_is_fitted(self, "classifier_")
        moved = copy.copy(self)
        moved.classifier_ = self.classifier_.with_prior(order_by_class(prior, self.classes_, "prior"))
        return moved

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = False
        return tags

    def _seed(self) -> int:
        if isinstance(self.random_state, Integral):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))


def _checks(encodes: bool) -> dict[str, Any]:
    """Return how scikit-learn validates rows: only their column names, if a schema checks the values."""
    return {"skip_check_array": True} if encodes else {"dtype": FLOATS}


def _standardize(X: NDArray[Any], scaler: Any) -> NDArray[np.float32]:
    """Return the inputs of the network; rows are standardised in their own precision, before it is reduced."""
    scaled = X if scaler is None else scaler.transform(X)
    with np.errstate(over="ignore"):  # values beyond float32 become infinite, which is refused with the row's number
        return np.asarray(scaled, dtype=np.float32)
