"""Cross-fitting: every row is predicted by a model that was trained on other rows.

All rows then serve to estimate the accuracy, not just a held-out part; on its training rows a model looks too good.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from fedul._utils.randomness import numpy_generator
from fedul.classifier import Classifier
from fedul.core import Federation, Index, Matrix, Rows, TaskSpec, UnlabeledSets, gather_rows
from fedul.errors import InputError
from fedul.evaluation.out_of_fold import ClientPredictions, OutOfFoldPredictions
from fedul.evaluation.row_features import RowFeatures

Mask = NDArray[np.bool_]

MAX_FOLDS = 1000
BLOCK = 1024
"""Rows that are read at a time, and rows from which features are chosen."""


def cross_fit(
    federation: Federation,
    train: Callable[[Federation], Classifier],
    *,
    folds: int = 5,
    seed: int = 0,
) -> OutOfFoldPredictions:
    """Return predictions for the rows of all clients, each by a model that was trained without the row.

    `train` trains a model on a part of the federation, just as the delivered one was trained. Held-out rows are used
    like all others: with a fifth of the rows held out and five folds, a model learns from as many rows as the delivered
    one. But where the priors are declared to be the class shares of the training rows, only these are used: known class
    counts remove most of the noise.
    """
    if not isinstance(folds, int) or not 2 <= folds <= MAX_FOLDS:
        raise InputError(f"folds: expected a whole number from 2 to {MAX_FOLDS:,}, got '{folds}'.")
    parts = _split_clients(federation.clients)
    fold_of = _assign_folds(parts, folds, numpy_generator(seed, "folds"))
    for fold in range(folds):
        classifier = train(replace(federation, clients=[part.without(fold_of[part.ids] == fold) for part in parts]))
        for part in parts:
            part.predict(classifier, fold_of[part.ids] == fold)
    features = _row_features(parts, federation.spec, numpy_generator(seed, "features"))
    return OutOfFoldPredictions(
        [part.result(features) for part in parts],
        federation.classes,
        federation.test_prior,
        columns=features.columns,
    )


def held_out_predictions(client: UnlabeledSets, spec: TaskSpec, classifier: Classifier) -> OutOfFoldPredictions:
    """Return predictions of the classifier itself for the held-out rows of one client."""
    numbers = np.unique(client.held_out.index.numpy(), return_inverse=True)[1]
    part = _Part(client, client.held_out, numbers, np.zeros((len(numbers), len(spec.classes))))
    part.predict(classifier, np.ones(len(numbers), dtype=bool))
    features = _row_features([part], spec, numpy_generator(0, "features"))
    return OutOfFoldPredictions([part.result(features)], spec.classes, spec.test_prior, columns=features.columns)


@dataclass(frozen=True, eq=False)
class _Part:
    """The rows of a client that are evaluated, and the predictions for them."""

    client: UnlabeledSets
    rows: Rows
    ids: Index  # (n,): number of the row, the same in all its sets and at all clients
    probabilities: Matrix  # (n, K)

    def without(self, fold: Mask) -> UnlabeledSets:
        """Return the client without the rows of a fold; a set that would become empty keeps one row.

        Priors that speak of its rows then speak of more rows than it has.
        """
        rest, sets = ~fold, self.rows.sets.numpy()
        for empty in np.flatnonzero(np.bincount(sets[rest], minlength=len(self.client.priors)) == 0):
            rest[np.flatnonzero(sets == empty)[0]] = True
        at = torch.from_numpy(np.flatnonzero(rest))
        # Rows that are not evaluated stay held out, to choose the temperature.
        held_out = self.client.held_out if self.rows is self.client.train else NO_ROWS
        scope = replace(self.client.prior_scope, missing=1 - len(at) / len(rest))
        train = Rows(self.rows.index[at], self.rows.sets[at])
        return replace(self.client, train=train, held_out=held_out, prior_scope=scope)

    def predict(self, classifier: Classifier, chosen: Mask) -> None:
        at = np.flatnonzero(chosen)
        batches = gather_rows([(self.client.inputs, self.rows.index[torch.from_numpy(at)])], BLOCK)
        classifier = classifier.without_adjustments()  # the rows of a federation are adjusted already
        for first, batch in zip(range(0, len(at), BLOCK), batches, strict=True):
            self.probabilities[at[first : first + BLOCK]] = classifier.predict_proba(batch)

    def result(self, features: RowFeatures) -> ClientPredictions:
        client, sets = self.client, self.rows.sets.numpy()
        batches = gather_rows([(client.inputs, self.rows.index)], BLOCK)
        return ClientPredictions(
            client.name,
            client.set_names,
            client.priors,
            sets,
            self.ids,
            self.probabilities,
            np.concatenate([features(batch) for batch in batches]),
            client.prior_scope.exact and self.rows is not client.held_out,
            self._sampling(),
            client.prior_scope.rounding,
        )

    def _sampling(self) -> float:
        """Return the variance of the class shares of the rows around the priors, in multinomial units.

        Shares in n rows and in n' rows that contain them, or are contained in them, differ by |1 - n / n'|; shares in
        disjoint rows by 1 + n / n'.
        """
        if self.client.prior_scope.of == "population":
            return 1.0
        counted = len(self.client.prior_rows)
        disjoint = self.client.prior_scope.of == "train" and self.rows is self.client.held_out
        return 1 + len(self.rows) / counted if disjoint else abs(1 - len(self.rows) / counted)


NO_ROWS = Rows(torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64))


def _split_clients(clients: Sequence[UnlabeledSets]) -> list[_Part]:
    offsets, total = dict[int, int](), 0  # clients may share their inputs, and then rows
    for client in clients:
        if id(client.inputs) not in offsets:
            offsets[id(client.inputs)] = total
            total += len(client.inputs)
    rows = [client.prior_rows if client.prior_scope.exact else client.all_rows for client in clients]
    numbers = [part.index.numpy() + offsets[id(client.inputs)] for part, client in zip(rows, clients, strict=True)]
    ids = np.unique(np.concatenate(numbers), return_inverse=True)[1]
    ends = np.cumsum([len(part) for part in rows])[:-1]
    return [
        _Part(client, part, part_ids, np.zeros((len(part), client.priors.shape[1])))
        for client, part, part_ids in zip(clients, rows, np.split(ids, ends), strict=True)
    ]


def _assign_folds(parts: Sequence[_Part], folds: int, generator: np.random.Generator) -> Index:
    """Return the fold of every row by its number; the rows of a set are spread evenly over the folds."""
    ids = np.concatenate([part.ids for part in parts])
    client = np.repeat(np.arange(len(parts)), [len(part.ids) for part in parts])
    sets = np.concatenate([part.rows.sets.numpy() for part in parts])
    order = ids[np.lexsort((generator.uniform(size=len(ids)), sets, client))]
    numbers, first = np.unique(order, return_index=True)  # a row of several sets is placed by its first set
    fold_of = np.zeros(len(numbers), np.int64)
    fold_of[numbers[np.argsort(first)]] = np.arange(len(numbers)) % folds
    return fold_of


def _row_features(parts: Sequence[_Part], spec: TaskSpec, generator: np.random.Generator) -> RowFeatures:
    """Return the features that describe rows, chosen on a sample of them."""
    share = BLOCK / sum(len(part.rows) for part in parts)
    chosen = [torch.from_numpy(np.flatnonzero(generator.uniform(size=len(part.rows)) < share)) for part in parts]
    sample = [(part.client.inputs, part.rows.index[at]) for part, at in zip(parts, chosen, strict=True) if len(at)]
    return RowFeatures.fit(sample, spec.scaling, spec.schema)
