"""Clients whose rows are drawn from normal classes, so that the truth and the posterior of every row are known."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedul.core import Matrix
from fedul.core.priors import sample_priors
from fedul.evaluation.out_of_fold import ClientPredictions, OutOfFoldPredictions


@dataclass(frozen=True, eq=False)
class Mixture:
    """Predictions for the rows of all clients, and the true class of each row."""

    predictions: OutOfFoldPredictions
    labels: list[NDArray[np.int64]]

    @cached_property
    def recall(self) -> Matrix:
        labels = np.concatenate(self.labels)
        right = np.concatenate([client.probabilities.argmax(1) for client in self.predictions.clients]) == labels
        return np.array([right[labels == k].mean() for k in range(len(self.predictions.classes))])

    @property
    def accuracy(self) -> float:
        return float(self.predictions.test_prior @ self.recall)


def mixture(
    seed: int,
    *,
    clients: int = 5,
    sets: int = 8,
    rows: int = 60,
    classes: int = 4,
    exact: bool = True,
    recipe: str = "boosted",
    sharpness: float = 1.0,
    apart: float = 2.5,
) -> Mixture:
    """Probabilities are the true posteriors to the power `sharpness`: above 1, they are too sure."""
    generator = np.random.default_rng(seed)
    centres = generator.normal(size=(classes, 3)) * apart / np.sqrt(2)
    predictions, labels = [], []
    for c in range(clients):
        priors = sample_priors(recipe, sets, classes, generator)
        counts = np.stack([generator.multinomial(rows, own) for own in priors])
        label = np.concatenate([np.repeat(np.arange(classes), own) for own in counts])
        inputs = centres[label] + generator.normal(size=(len(label), 3))
        logs = -sharpness * np.square(inputs[:, None] - centres).sum(axis=2) / 2
        shares = np.exp(logs - logs.max(axis=1, keepdims=True))
        names = [f"set {m}" for m in range(sets)]
        predictions.append(
            ClientPredictions(
                f"client-{c + 1}",
                names,
                counts / rows if exact else priors,
                np.repeat(np.arange(sets), rows),
                np.arange(len(label)) + c * sets * rows,
                shares / shares.sum(axis=1, keepdims=True),
                inputs,
                exact,
            )
        )
        labels.append(label)
    names = [f"class {k}" for k in range(classes)]
    return Mixture(OutOfFoldPredictions(predictions, names, np.full(classes, 1 / classes)), labels)
