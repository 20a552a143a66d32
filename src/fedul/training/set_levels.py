"""Levels of prediction sets, from the predictions for held-out rows and without labels."""

from __future__ import annotations

import numpy as np

from fedul.classifier import Classifier
from fedul.core import Federation, gather_rows
from fedul.core.prediction_sets import coverage_levels, population_weights

FEWEST_ROWS, MOST_ROWS = 50, 8192
"""Held-out rows that levels are computed from, over all clients."""


def held_out_levels(federation: Federation, classifier: Classifier) -> tuple[float, ...]:
    """Return the levels of `coverage_levels` for held-out rows; empty with too few of them.

    Held-out rows have the class mix of the federation; they are weighted to represent the test prior.
    """
    clients = federation.clients
    ends = federation.columns.held_out_rows.cumsum()
    total = int(ends[-1])
    if total < FEWEST_ROWS:
        return ()
    places = np.arange(0, total, -(-total // MOST_ROWS))  # in the held-out rows of all clients, one after another
    owners, first = np.unique(np.searchsorted(ends, places, side="right"), return_index=True)
    rows = []
    for c, own in zip(owners.tolist(), np.split(places, first[1:]), strict=True):
        client = clients[c]
        rows.append((client.inputs, client.held_out.index[own - (ends[c] - len(client.held_out))]))
    classifier = classifier.without_adjustments()
    probabilities = np.concatenate([classifier.predict_proba(batch) for batch in gather_rows(rows, MOST_ROWS)])
    mix = federation.spec.class_mix
    assert mix is not None  # a federation knows the class mix of its rows
    return coverage_levels(probabilities, population_weights(probabilities, mix, federation.test_prior))
