"""Cross-fitting: every row is predicted by a model that was trained on other sets, or at least on other rows.

All rows then serve to estimate the accuracy, not just a held-out part; on its training rows a model looks too good. A
model that recognises a set by irrelevant features looks too good on all rows of that set. So whole sets are left out of
training where the client has others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedul._utils.randomness import numpy_generator
from fedul.core import Federation, Index, Matrix, Rows, TaskSpec, UnlabeledSets, gather_rows
from fedul.errors import InputError
from fedul.evaluation.out_of_fold import ClientPredictions, OutOfFoldPredictions, Standardization
from fedul.evaluation.row_features import RowFeatures
from fedul.training.left_out import FEWEST_AT_CLIENT

Mask = NDArray[np.bool_]


class Predictor(Protocol):
    """What cross-fitting needs of a trained model."""

    def without_adjustments(self) -> Predictor:
        """Return the model for rows that are adjusted to their site already."""

    def predict_proba(self, rows: Tensor, /) -> Matrix:
        """Return class probabilities (n, K) under the test prior."""


MAX_FOLDS = 1000
ROWS_OF_SET = 64
"""Rows of a set that show how much the models of the folds differ."""

BLOCK = 1024
"""Rows that are read at a time, and rows from which features are chosen."""


def cross_fit(
    federation: Federation,
    train: Callable[[Federation], Predictor],
    *,
    folds: int = 5,
    seed: int = 0,
    describe_rows: bool = True,
) -> OutOfFoldPredictions:
    """Return predictions for the rows of all clients, each by a model that was trained without the row.

    `train` trains a model on a part of the federation, just as the delivered one was trained; `cross_fit_parts` takes a
    function that trains models on several parts together. A fold consists of whole
    sets, the same number at each client as far as possible. A client with fewer than `FEWEST_AT_CLIENT` sets, or whose
    sets share rows with other sets, leaves out a part of the rows of each set instead. Held-out rows are used like all
    others: with a fifth of the rows held out and five folds, a model learns from as many rows as the delivered one. But
    where the priors are declared to be the class shares of the training rows, only these are used: known class counts
    remove most of the noise. Without `describe_rows` there are no features of rows.
    """
    return cross_fit_parts(
        federation, lambda parts: map(train, parts), folds=folds, seed=seed, describe_rows=describe_rows
    )


def cross_fit_parts(
    federation: Federation,
    train: Callable[[Iterable[Federation]], Iterable[Predictor]],
    *,
    folds: int = 5,
    seed: int = 0,
    describe_rows: bool = True,
) -> OutOfFoldPredictions:
    """Return what `cross_fit` returns, where `train` trains a model on each of several parts of the federation."""
    if not isinstance(folds, int) or not 2 <= folds <= MAX_FOLDS:
        raise InputError(f"folds: expected a whole number from 2 to {MAX_FOLDS:,}, got '{folds}'.")
    parts = _split_clients(federation.clients)
    fold_of = _assign_folds(parts, folds, seed)
    set_means: list[list[Matrix]] = [[] for _ in parts]  # of a sample of rows, by client and model
    left_outs = [[of_rows == fold for of_rows in fold_of] for fold in range(folds)]
    trained_on = (
        replace(federation, clients=[p.without(out) for p, out in zip(parts, left_out, strict=True)])
        for left_out in left_outs
    )
    for left_out, classifier in zip(left_outs, train(trained_on), strict=True):
        standardize = Standardization.of(_predict_sample(parts, classifier, numpy_generator(seed, "reference")))
        for part, out, means in zip(parts, left_out, set_means, strict=True):
            part.predict(classifier, out, standardize)
            # Two models differ by whether they were trained on a set; more show how models differ that were.
            means.append(part.sample_means(classifier, standardize, out if folds > 2 else np.zeros_like(out)))
    features = _row_features(parts, federation.spec, numpy_generator(seed, "features")) if describe_rows else None
    return OutOfFoldPredictions(
        [
            part.result(features, _variance(np.stack(means)), of_rows)
            for part, means, of_rows in zip(parts, set_means, fold_of, strict=True)
        ],
        federation.classes,
        federation.test_prior,
        columns=() if features is None else features.columns,
    )


def held_out_predictions(client: UnlabeledSets, spec: TaskSpec, classifier: Predictor) -> OutOfFoldPredictions:
    """Return predictions of the classifier itself for the held-out rows of one client."""
    numbers = np.unique(client.held_out.index.numpy(), return_inverse=True)[1]
    part = _Part.of(client, client.held_out, numbers)
    standardize = Standardization.of(_predict_sample([part], classifier, numpy_generator(0, "reference")))
    part.predict(classifier, np.ones(len(numbers), dtype=bool), standardize)
    features = _row_features([part], spec, numpy_generator(0, "features"))
    return OutOfFoldPredictions([part.result(features)], spec.classes, spec.test_prior, columns=features.columns)


@dataclass(frozen=True, eq=False)
class _Part:
    """The rows of a client that are evaluated, and the predictions for them."""

    client: UnlabeledSets
    rows: Rows
    ids: Index  # (n,): number of the row, the same in all its sets and at all clients
    probabilities: Matrix  # (n, K)
    scores: Matrix  # (n, K)
    leaves_sets_out: bool = False  # whether a fold consists of whole sets

    @classmethod
    def of(cls, client: UnlabeledSets, rows: Rows, ids: Index, *, leaves_sets_out: bool = False) -> _Part:
        """Return rows without predictions."""
        shape = len(rows), client.priors.shape[1]
        return cls(client, rows, ids, np.zeros(shape), np.zeros(shape), leaves_sets_out)

    def without(self, fold: Mask) -> UnlabeledSets:
        """Return the client without the rows of a fold.

        If these are a part of the rows of each set, a set that would become empty keeps one row, and priors that speak
        of its rows then speak of more rows than it has.
        """
        sets = self.rows.sets.numpy()
        # Rows that are not evaluated stay held out, to choose the temperature.
        held_out = self.client.held_out if self.rows is self.client.train else NO_ROWS
        whole = replace(self.client, train=self.rows, held_out=held_out)
        if self.leaves_sets_out:
            return whole.with_sets(np.setdiff1d(np.arange(len(self.client.priors)), sets[fold]).tolist())
        rest = ~fold
        for empty in np.flatnonzero(np.bincount(sets[rest], minlength=len(self.client.priors)) == 0):
            rest[np.flatnonzero(sets == empty)[0]] = True
        at = torch.from_numpy(np.flatnonzero(rest))
        scope = replace(self.client.prior_scope, missing=1 - len(at) / len(rest))
        return replace(whole, train=Rows(self.rows.index[at], self.rows.sets[at]), prior_scope=scope)

    def predict(self, classifier: Predictor, chosen: Mask, standardize: Standardization) -> None:
        at = np.flatnonzero(chosen)
        batches = gather_rows([(self.client.inputs, self.rows.index[torch.from_numpy(at)])], BLOCK)
        classifier = classifier.without_adjustments()  # the rows of a federation are adjusted already
        for first, batch in zip(range(0, len(at), BLOCK), batches, strict=True):
            self.probabilities[at[first : first + BLOCK]] = found = classifier.predict_proba(batch)
            self.scores[at[first : first + BLOCK]] = standardize(found)

    def sample_means(self, classifier: Predictor, standardize: Standardization, left_out: Mask) -> Matrix:
        """Return the mean score (M, K) of a few rows of each set; NaN for sets that were left out of training."""
        sets = self.rows.sets.numpy()
        order = np.argsort(sets, kind="stable")
        counts = np.bincount(sets, minlength=len(self.client.priors))
        place = np.arange(len(sets)) - np.repeat(np.cumsum(counts) - counts, counts)
        chosen = order[place < ROWS_OF_SET]
        batches = gather_rows([(self.client.inputs, self.rows.index[torch.from_numpy(chosen)])], BLOCK)
        classifier = classifier.without_adjustments()
        scores = np.concatenate([standardize(classifier.predict_proba(batch)) for batch in batches])
        total = np.zeros((len(counts), scores.shape[1]))
        np.add.at(total, sets[chosen], scores)
        means: Matrix = total / np.minimum(counts, ROWS_OF_SET).clip(1)[:, None]
        if self.leaves_sets_out:
            means[np.unique(sets[left_out])] = np.nan
        return means

    def result(
        self, features: RowFeatures | None, model_variance: Matrix | None = None, fold_of: Index | None = None
    ) -> ClientPredictions:
        client, sets = self.client, self.rows.sets.numpy()
        folds = np.full(len(client.priors), -1)
        if self.leaves_sets_out and fold_of is not None:
            folds[sets] = fold_of
        described = np.zeros((len(self.rows), 0))
        if features is not None:
            batches = gather_rows([(client.inputs, self.rows.index)], BLOCK)
            described = np.concatenate([features(batch) for batch in batches])
        return ClientPredictions(
            client.name,
            client.set_names,
            client.priors,
            sets,
            self.ids,
            self.probabilities,
            described,
            client.prior_scope.exact and self.rows is not client.held_out,
            scores=self.scores,
            model_variance=model_variance,
            folds=folds,
            sampling=self._sampling(),
            rounding=client.prior_scope.rounding,
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
    ids, times = np.unique(np.concatenate(numbers), return_inverse=True, return_counts=True)[1:]
    ends = np.cumsum([len(part) for part in rows])[:-1]
    return [
        _Part.of(
            client,
            part,
            part_ids,
            leaves_sets_out=len(client.priors) >= FEWEST_AT_CLIENT and bool((times[part_ids] == 1).all()),
        )
        for client, part, part_ids in zip(clients, rows, np.split(ids, ends), strict=True)
    ]


def _assign_folds(parts: Sequence[_Part], folds: int, seed: int) -> list[Index]:
    """Return the fold of every row, by client."""
    by_row = _folds_of_rows(parts, folds, numpy_generator(seed, "folds"))
    generator, result = numpy_generator(seed, "sets left out"), []
    for part in parts:
        if not part.leaves_sets_out:
            result.append(by_row[part.ids])
            continue
        places = generator.permutation(len(part.client.priors)) + generator.integers(folds)
        result.append((places % folds)[part.rows.sets.numpy()])
    return result


def _folds_of_rows(parts: Sequence[_Part], folds: int, generator: np.random.Generator) -> Index:
    """Return the fold of every row by its number; the rows of a set are spread evenly over the folds."""
    ids = np.concatenate([part.ids for part in parts])
    client = np.repeat(np.arange(len(parts)), [len(part.ids) for part in parts])
    sets = np.concatenate([part.rows.sets.numpy() for part in parts])
    order = ids[np.lexsort((generator.uniform(size=len(ids)), sets, client))]
    numbers, first = np.unique(order, return_index=True)  # a row of several sets is placed by its first set
    fold_of = np.zeros(len(numbers), np.int64)
    fold_of[numbers[np.argsort(first)]] = np.arange(len(numbers)) % folds
    return fold_of


def _variance(values: Matrix) -> Matrix:
    """Return the variance over the first axis without NaN; 0 where there is one value only."""
    known = ~np.isnan(values)
    count = known.sum(axis=0)
    mean = np.where(known, values, 0).sum(axis=0) / np.maximum(count, 1)
    squares = np.where(known, values - mean, 0) ** 2
    variance: Matrix = squares.sum(axis=0) / np.maximum(count - 1, 1)
    return variance


def _sample(parts: Sequence[_Part], generator: np.random.Generator) -> list[tuple[Tensor, Tensor]]:
    """Return inputs and indices of about `BLOCK` rows of all clients."""
    share = BLOCK / sum(len(part.rows) for part in parts)
    chosen = [torch.from_numpy(np.flatnonzero(generator.uniform(size=len(part.rows)) < share)) for part in parts]
    return [(part.client.inputs, part.rows.index[at]) for part, at in zip(parts, chosen, strict=True) if len(at)]


def _predict_sample(parts: Sequence[_Part], classifier: Predictor, generator: np.random.Generator) -> Matrix:
    """Return predictions for the same sample of rows whatever the classifier."""
    classifier = classifier.without_adjustments()
    batches = gather_rows(_sample(parts, generator), BLOCK)
    return np.concatenate([classifier.predict_proba(batch) for batch in batches])


def _row_features(parts: Sequence[_Part], spec: TaskSpec, generator: np.random.Generator) -> RowFeatures:
    """Return the features that describe rows, chosen on a sample of them."""
    return RowFeatures.fit(_sample(parts, generator), spec.scaling, spec.schema)
