"""Naive classifiers to compare a trained one with, evaluated in the same way without labels."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from fedul._utils.hardware import torch_threads
from fedul.core import Federation, Matrix, gather_rows
from fedul.evaluation.cross_fit import cross_fit
from fedul.evaluation.document import MAJORITY, SOFT_SETS, TOP_CLASS, Baseline
from fedul.evaluation.label_free import estimate_accuracy

MAX_VALUES = 20_000_000
"""Maximum of rows times features that a logistic regression is fitted to."""

MIN_PARALLEL = 20_000_000
"""Products of a gradient from which on several threads pay; with fewer they wait for each other."""

BLOCK = 4096
"""Rows that are read at a time."""


def evaluate_baselines(federation: Federation, *, folds: int, seed: int) -> tuple[Baseline, ...]:
    """Return the accuracies of the naive classifiers, with the folds of the evaluation."""
    predictions = cross_fit(federation, fit_soft_sets, folds=folds, seed=seed, describe_rows=False)
    estimate = estimate_accuracy(predictions, seed=seed)
    if estimate.refusal is None:
        found = estimate.accuracy
        regression = Baseline(SOFT_SETS, found.value, (found.low, found.high))
    else:
        regression = Baseline(SOFT_SETS, None)
    return (
        Baseline(MAJORITY, float(federation.test_prior.max())),
        Baseline(TOP_CLASS, top_class_accuracy(federation)),
        regression,
    )


def top_class_accuracy(federation: Federation) -> float:
    """Return the accuracy at the test prior of predicting the most common class of each set."""
    priors = np.concatenate([client.priors for client in federation.clients])
    counts = np.concatenate(
        [np.bincount(client.all_rows.sets.numpy(), minlength=len(client.priors)) for client in federation.clients]
    )
    rows = counts[:, None] * priors  # (S, K): expected rows of each class
    top = np.eye(priors.shape[1])[priors.argmax(axis=1)]
    return float(federation.test_prior @ ((rows * top).sum(axis=0) / np.maximum(rows.sum(axis=0), 1e-12)))


def fit_soft_sets(federation: Federation) -> SoftSetRegression:
    """Fit a logistic regression on all rows, with the class priors of their sets as soft labels.

    Features are standardized, and the penalty is half of the squared weights, as by default in scikit-learn.
    """
    flat: Callable[[Tensor], Tensor] = lambda rows: federation.scaling(rows).double().flatten(1).cpu()  # noqa: E731
    size = int(np.prod(federation.spec.input_shape))
    total = sum(len(client.train) for client in federation.clients)
    share = min(1.0, MAX_VALUES / max(size * total, 1))
    generator = torch.Generator().manual_seed(0)
    inputs, targets = [], []
    for client in federation.clients:
        chosen = torch.rand(len(client.train), generator=generator) < share
        if chosen.any():
            inputs += list(gather_rows([(client.inputs, client.train.index[chosen])], BLOCK))
            targets.append(torch.from_numpy(client.priors)[client.train.sets[chosen]])
    x, target = torch.cat([flat(batch) for batch in inputs]), torch.cat(targets).double()
    mean, deviation = x.mean(dim=0), x.std(dim=0, correction=0).clamp(min=1e-9)
    x = torch.cat([(x - mean) / deviation, torch.ones(len(x), 1, dtype=x.dtype)], dim=1)
    shape = (x.shape[1], target.shape[1])

    def loss(flat_weights: Matrix) -> tuple[float, Matrix]:
        weights = torch.from_numpy(flat_weights).reshape(shape)
        logs = torch.log_softmax(x @ weights, dim=1)
        penalized = weights.clone()
        penalized[-1] = 0
        value = -(target * logs).sum() / share + penalized.square().sum() / 2
        gradient = x.T @ (logs.exp() - target) / share + penalized
        return float(value), gradient.reshape(-1).numpy()

    with torch_threads(1) if x.numel() * shape[1] < MIN_PARALLEL else nullcontext():
        found = minimize(loss, np.zeros(shape[0] * shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 200})
    mix = target.mean(dim=0)
    weights = torch.from_numpy(found.x).reshape(shape)
    prior = torch.from_numpy(federation.test_prior)
    offset = torch.log(prior / mix.clamp(min=1e-12))
    return SoftSetRegression(flat, mean, deviation, weights, offset)


@dataclass(frozen=True, eq=False)
class SoftSetRegression:
    """A fitted logistic regression; predictions are under the test prior."""

    flat: Callable[[Tensor], Tensor]
    mean: Tensor
    deviation: Tensor
    weights: Tensor  # (D + 1, K)
    offset: Tensor  # (K,)

    def without_adjustments(self) -> SoftSetRegression:
        """Return the model itself: rows of a federation are adjusted already."""
        return self

    def predict_proba(self, rows: Tensor) -> Matrix:
        """Return class probabilities (n, K) of rows."""
        x = (self.flat(rows) - self.mean) / self.deviation
        logits = x @ self.weights[:-1] + self.weights[-1] + self.offset
        probabilities: Matrix = torch.softmax(logits, dim=1).numpy()
        return probabilities
