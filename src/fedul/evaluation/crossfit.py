"""Cross-fitting: every row is judged by a model that was trained on other rows.

So all rows, not a held-out few, tell how good the classifier is; those it was trained on would flatter it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedul.classifier import Classifier
from fedul.errors import InputError
from fedul.evaluation.judged import Judged, JudgedClient, are_class_shares
from fedul.federation import Agreed, Federation, Rows, Scaling, UnlabeledSets
from fedul.inputs import Index, gathered
from fedul.priors import Matrix
from fedul.randomness import numpy_generator

Mask = NDArray[np.bool_]

FEATURES = 8
"""Principal components that describe a row to the test of the assumption."""

AT_ONCE = 1024
"""Rows that are read in one go, and from how many the components are computed."""


def cross_fit(
    federation: Federation,
    train: Callable[[Federation], Classifier],
    *,
    folds: int = 5,
    seed: int = 0,
) -> Judged:
    """The rows of all clients, each judged by a model trained without it.

    `train` makes a model from a part of the federation; it should train as the delivered one was, for as many rounds.
    Held-out rows are judged and trained on like all others: with a fifth of the rows held out and five folds, a model
    learns from as many as the delivered one. But where the priors are the class shares of the training rows alone,
    only these are: then the class counts are known, which takes most of the noise away.
    """
    if folds < 2:
        raise InputError(f"folds: {folds} would leave no rows to train on; use two or more.")
    parts = _parts(federation.clients)
    fold_of = _dealt(parts, folds, numpy_generator(seed, "folds"))
    for fold in range(folds):
        classifier = train(replace(federation, clients=[part.without(fold_of[part.ids] == fold) for part in parts]))
        for part in parts:
            part.judge(classifier, fold_of[part.ids] == fold)
    axes = _principal_axes(parts, federation.scaling, numpy_generator(seed, "features"))
    return Judged([part.result(federation.scaling, axes) for part in parts], federation.classes, federation.test_prior)


def held_out_judged(client: UnlabeledSets, agreed: Agreed, classifier: Classifier) -> Judged:
    """The held-out rows of one client, as the classifier itself judges them."""
    numbers = np.unique(client.held_out.index.numpy(), return_inverse=True)[1]
    part = _Part(client, client.held_out, numbers, np.zeros((len(numbers), len(agreed.classes))))
    part.judge(classifier, np.ones(len(numbers), dtype=bool))
    axes = _principal_axes([part], agreed.scaling, numpy_generator(0, "features"))
    return Judged([part.result(agreed.scaling, axes)], agreed.classes, agreed.test_prior)


@dataclass(frozen=True, eq=False)
class _Part:
    """The rows of a client that are judged, and what the models said of them."""

    client: UnlabeledSets
    rows: Rows
    ids: Index  # (n,): counted over all clients, the same for a row wherever it stands
    probabilities: Matrix  # (n, K)

    def without(self, apart: Mask) -> UnlabeledSets:
        """The client with all other rows to train on; a set that would have none keeps one."""
        kept, sets = ~apart, self.rows.sets.numpy()
        for empty in np.flatnonzero(np.bincount(sets[kept], minlength=len(self.client.priors)) == 0):
            kept[np.flatnonzero(sets == empty)[0]] = True
        at = torch.from_numpy(np.flatnonzero(kept))
        # Rows that nobody judges stay held out, to choose the temperature by.
        held_out = self.client.held_out if self.rows is self.client.train else NO_ROWS
        return replace(self.client, train=Rows(self.rows.index[at], self.rows.sets[at]), held_out=held_out)

    def judge(self, classifier: Classifier, chosen: Mask) -> None:
        at = np.flatnonzero(chosen)
        batches = gathered([(self.client.inputs, self.rows.index[torch.from_numpy(at)])], AT_ONCE)
        for first, batch in zip(range(0, len(at), AT_ONCE), batches, strict=True):
            self.probabilities[at[first : first + AT_ONCE]] = classifier.predict_proba(batch)

    def result(self, scaling: Scaling, axes: tuple[Matrix, Matrix]) -> JudgedClient:
        (mean, directions), client, sets = axes, self.client, self.rows.sets.numpy()
        batches = gathered([(client.inputs, self.rows.index)], AT_ONCE)
        features = np.concatenate([(_flat(scaling, batch) - mean) @ directions for batch in batches])
        return JudgedClient(
            client.name,
            client.set_names,
            client.priors,
            sets,
            self.ids,
            self.probabilities,
            features,
            are_class_shares(client.priors, sets),
        )


NO_ROWS = Rows(torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64))


def _parts(clients: Sequence[UnlabeledSets]) -> list[_Part]:
    offsets, total = dict[int, int](), 0  # clients may share their inputs, and then rows
    for client in clients:
        if id(client.inputs) not in offsets:
            offsets[id(client.inputs)] = total
            total += len(client.inputs)
    rows = [_judged(client) for client in clients]
    everywhere = [own.index.numpy() + offsets[id(client.inputs)] for own, client in zip(rows, clients, strict=True)]
    ids = np.unique(np.concatenate(everywhere), return_inverse=True)[1]
    ends = np.cumsum([len(own) for own in rows])[:-1]
    return [
        _Part(client, own, numbers, np.zeros((len(own), client.priors.shape[1])))
        for client, own, numbers in zip(clients, rows, np.split(ids, ends), strict=True)
    ]


def _judged(client: UnlabeledSets) -> Rows:
    """All rows; but exact class shares of the training rows are worth more than further rows."""
    train, held = client.train, client.held_out
    together = Rows(torch.cat([train.index, held.index]), torch.cat([train.sets, held.sets]))
    exact = [are_class_shares(client.priors, rows.sets.numpy()) for rows in (train, together)]
    return train if exact == [True, False] else together


def _dealt(parts: Sequence[_Part], folds: int, generator: np.random.Generator) -> Index:
    """The fold of every row by its number: the rows of a set, in random order, go to one fold after the other."""
    ids = np.concatenate([part.ids for part in parts])
    client = np.repeat(np.arange(len(parts)), [len(part.ids) for part in parts])
    sets = np.concatenate([part.rows.sets.numpy() for part in parts])
    order = ids[np.lexsort((generator.uniform(size=len(ids)), sets, client))]
    numbers, first = np.unique(order, return_index=True)  # a row of several sets goes where its first set sends it
    fold_of = np.zeros(len(numbers), np.int64)
    fold_of[numbers[np.argsort(first)]] = np.arange(len(numbers)) % folds
    return fold_of


def _principal_axes(parts: Sequence[_Part], scaling: Scaling, generator: np.random.Generator) -> tuple[Matrix, Matrix]:
    """The mean row (D,), and directions (D, d) along which rows differ most, scaled to spread 1."""
    share = AT_ONCE / sum(len(part.rows) for part in parts)
    chosen = [torch.from_numpy(np.flatnonzero(generator.uniform(size=len(part.rows)) < share)) for part in parts]
    drawn = [(part.client.inputs, part.rows.index[at]) for part, at in zip(parts, chosen, strict=True) if len(at)]
    rows = np.concatenate([_flat(scaling, batch) for batch in gathered(drawn, AT_ONCE)])
    mean = rows.mean(axis=0)
    # By the products of rows: a row may have many more values than there are rows here.
    values, vectors = np.linalg.eigh((rows - mean) @ (rows - mean).T)
    values, vectors = values[::-1][:FEATURES], vectors[:, ::-1][:, :FEATURES]
    real = values > 1e-9 * values[0]
    return mean, (rows - mean).T @ vectors[:, real] / values[real] * np.sqrt(len(rows))


def _flat(scaling: Scaling, rows: Tensor) -> Matrix:
    flat: Matrix = scaling(rows).double().flatten(1).numpy()
    return flat
