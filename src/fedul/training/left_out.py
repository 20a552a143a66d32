"""Sets left out of training, which judge a classifier without labels.

Rows held out of a set that is trained on do not test a classifier: one that recognises a set by irrelevant features
also recognises its held-out rows. So a part of the sets of each client is left out of training. Let m be such a set
with class priors Pi_m, s the class mix of the federation, and p(k | x) the predictions under s. If sets differ in their
class mix only, a row x of m has the density

    p(x | m) = p(x) sum_k Pi_mk p(k | x) / s_k,

and the loss of the row is -log sum_k Pi_mk p(k | x) / s_k. Over all sets, each left out once, this is the
cross-entropy of the set of a row, a proper loss: its expectation is lowest at the true posterior, whatever the size of
the sets and however little their priors vary. A classifier that predicts s everywhere has a loss of 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedul._utils.randomness import numpy_generator
from fedul.classifier import Classifier
from fedul.core import Federation, Index, Matrix, UnlabeledSets, gather_rows

FOLDS = 3
"""Parts of the sets, each of which is left out once."""
FEWEST_AT_CLIENT = 3
"""A client with fewer sets leaves none out."""
TEMPERATURES = np.geomspace(1 / 8, 16, 15)
"""Temperatures at which predictions are judged. Calibration is not what distinguishes alternatives: it comes last."""
SMALLEST = 1e-9
"""Lower bound of a probability in a logarithm."""
BLOCK = 8192
"""Rows that are predicted at a time."""


def assign_folds(clients: Sequence[UnlabeledSets], seed: int) -> list[Index]:
    """Return the fold of every set of each client; -1 for sets that are always trained on.

    These are sets of labelled rows, and all sets of a client with fewer than `FEWEST_AT_CLIENT` others.
    """
    folds = []
    for client in clients:
        generator = numpy_generator(seed, "sets left out", client.name)
        count = len(client.priors)
        fold = np.full(count, -1)
        free = np.setdiff1d(np.arange(count), client.labelled_sets)
        if len(free) >= FEWEST_AT_CLIENT:
            fold[generator.permutation(free)] = (np.arange(len(free)) + generator.integers(FOLDS)) % FOLDS
        folds.append(fold)
    return folds


def without_sets(federation: Federation, left_out: Sequence[Index]) -> Federation:
    """Return the federation without these sets."""
    clients = [c.with_sets(np.flatnonzero(~out).tolist()) for c, out in zip(federation.clients, left_out, strict=True)]
    return replace(federation, clients=clients)


def score_left_out(federation: Federation, left_out: Sequence[Index], classifier: Classifier) -> tuple[Matrix, Matrix]:
    """Return the number of rows of each set that is left out, and the mean loss of its rows.

    Predictions are taken at the temperature with the lowest loss over all these sets.

    Parameters
    ----------
    federation : Federation
        The clients with all their sets.
    left_out : sequence of ndarray of shape (M,), bool
        By client, whether each of its sets was left out of training.
    classifier : Classifier
        What was trained without them.
    """
    classifier = classifier.without_adjustments()  # rows of a federation are adjusted already
    mix = federation.spec.class_mix
    assert mix is not None  # a federation knows the class mix of its rows
    rows, losses = [], []
    for client, out in zip(federation.clients, left_out, strict=True):
        for number in np.flatnonzero(out):
            inputs = [(client.inputs, part.index[part.sets == int(number)]) for part in (client.train, client.held_out)]
            total = np.zeros(len(TEMPERATURES))
            for block in gather_rows(inputs, BLOCK):
                total += _log_ratios(
                    classifier.predict_proba(block) / federation.test_prior, mix, client.priors[number]
                )
            rows.append(sum(len(index) for _, index in inputs))
            losses.append(-total / rows[-1])
    count, by_temperature = np.array(rows, dtype=np.float64), np.array(losses).reshape(len(rows), -1)
    best = int((count @ by_temperature).argmin())
    return count, by_temperature[:, best]


def _log_ratios(likelihoods: Matrix, mix: Matrix, priors: Matrix) -> Matrix:
    """Return the sums over rows of log p(x | m) / p(x), at each temperature, from likelihoods (n, K) up to a factor."""
    logits = np.log(np.maximum(likelihoods, SMALLEST))
    sums = []
    for temperature in TEMPERATURES:
        scaled = logits / temperature
        joint = mix * np.exp(scaled - scaled.max(axis=1, keepdims=True))
        posterior = joint / joint.sum(axis=1, keepdims=True)
        sums.append(np.log(np.maximum(posterior @ (priors / mix), SMALLEST)).sum())
    return np.array(sums)
