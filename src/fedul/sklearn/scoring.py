"""A score for model selection without labels: how well a classifier predicts which set a row is in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.metadata_routing import UNUSED

from fedul.core import Matrix, Transition, UnlabeledSets, set_loss
from fedul.errors import InputError

ROUTED = {"sets": True, "priors": True, "clients": True}
"""What scikit-learn's metadata routing passes on by default."""


class SetLikelihoodScore(BaseEstimator):  # type: ignore[misc]
    """Scorer: the mean of log Q over rows, the log-probability of the set that each row is in. Higher is better.

    It calls the label-free `score` of the estimator, which may be a pipeline that ends in a `FedULClassifier`. Use the
    instance `set_likelihood_score`: ``GridSearchCV(..., scoring=set_likelihood_score).fit(X, sets=..., priors=...)``.

    Examples
    --------
    >>> from fedul import FedULClassifier
    >>> from fedul.sklearn import set_likelihood_score
    >>> x = np.repeat([[-1.0], [1.0], [-1.0], [1.0]], [90, 10, 20, 80], axis=0)
    >>> month = np.repeat(["may", "june"], 100)
    >>> priors = {"may": {"ill": 0.9, "well": 0.1}, "june": {"ill": 0.2, "well": 0.8}}
    >>> model = FedULClassifier(rounds=5).fit(x, sets=month, priors=priors)
    >>> bool(set_likelihood_score(model, x, sets=month, priors=priors) > np.log(0.5))  # better than guessing
    True
    """

    __metadata_request__score: ClassVar[dict[str, Any]] = {**ROUTED, "estimator": UNUSED}

    def score(
        self,
        estimator: Any,
        X: Any,
        y: Any = None,
        *,
        sets: Any = None,
        priors: Any = None,
        clients: Any = None,
    ) -> float:
        """Return the score of a fitted estimator.

        Parameters
        ----------
        estimator : FedULClassifier or Pipeline
            The estimator.
        X, sets, priors, clients
            As for `FedULClassifier.fit`.
        y : ignored
            Labels are not used.
        """
        return float(estimator.score(X, sets=sets, priors=priors, clients=clients))

    __call__ = score


set_likelihood_score = SetLikelihoodScore()


def set_log_likelihoods(probabilities: NDArray[np.float64], prior: Matrix, clients: Sequence[UnlabeledSets]) -> Matrix:
    """Return log Q of the set of each row.

    Parameters
    ----------
    probabilities : ndarray of shape (n, K)
        Class probabilities under `prior`.
    prior : ndarray of shape (K,)
        Class mix that the probabilities are for.
    clients : sequence of UnlabeledSets
        Owners of all rows.

    Returns
    -------
    ndarray of shape (n,)
    """
    if all(len(client.priors) == 1 for client in clients):
        raise InputError(
            "every client has rows of one set only, which cannot score a classifier; give rows of several sets, for "
            "instance by shuffled folds: KFold(5, shuffle=True)."
        )
    # A probability that was rounded to 0 is very small: its logarithm must stay finite.
    logits = torch.from_numpy(np.log(np.maximum(probabilities, np.finfo(np.float64).tiny)))
    result = np.empty(len(probabilities))
    for client in clients:
        transition = Transition(client.priors, client.set_priors, prior)
        rows = client.train
        result[rows.index] = -set_loss(logits[rows.index], transition.joint[rows.sets], transition.marginal).numpy()
    return result
