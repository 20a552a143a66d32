"""A score for model selection without labels: how well a classifier tells which set a row is in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.metadata_routing import UNUSED

from fedul.errors import InputError
from fedul.federation import UnlabeledSets
from fedul.priors import Matrix
from fedul.transition import Transition, set_loss

ROUTED = {"sets": True, "priors": True, "clients": True}
"""What scikit-learn's metadata routing brings along, without being asked to for every estimator."""


class SetLikelihoodScore(BaseEstimator):  # type: ignore[misc]
    """The mean of log Q over rows: the log-probability of the set that each is in. Higher is better.

    A scorer: `GridSearchCV(..., scoring=set_likelihood_score).fit(X, sets=..., priors=...)`. It asks the estimator,
    which may be a pipeline that ends in a FedULClassifier, for its label-free `score`.
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
        """The score of a fitted estimator on these rows; labels `y` are not looked at."""
        return float(estimator.score(X, sets=sets, priors=priors, clients=clients))

    __call__ = score


set_likelihood_score = SetLikelihoodScore()


def set_log_likelihoods(probabilities: NDArray[np.float64], prior: Matrix, clients: Sequence[UnlabeledSets]) -> Matrix:
    """log Q of each row's set (n,), from class probabilities (n, K) under `prior`; every row is of some client."""
    if all(len(client.priors) == 1 for client in clients):
        raise InputError(
            "the rows to score are of one set a client, and so say nothing about the classifier; give rows of several "
            "sets, e.g. by folds that are shuffled: KFold(5, shuffle=True)."
        )
    # A probability that has become 0 is a very small one: its logarithm must stay a number.
    logits = torch.from_numpy(np.log(np.maximum(probabilities, np.finfo(np.float64).tiny)))
    found = np.empty(len(probabilities))
    for client in clients:
        transition = Transition(client.priors, client.set_priors, prior)
        own = client.train
        found[own.index] = -set_loss(logits[own.index], transition.joint[own.sets], transition.marginal).numpy()
    return found
