"""Before training: are these sets and priors enough, what is in the way, and how many labels are they worth?

Nothing here looks at a row: sizes of sets and class priors decide. What sets say of classes is in `set_information`,
the sentences are in `advice`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from scipy.spatial import cKDTree

from fedul import priors as prior_tools
from fedul.evaluation.advice import advice, summary
from fedul.evaluation.findings import (
    SAME_MIX,
    ClientOutlook,
    Forecast,
    NearDuplicates,
    Outlook,
    PairOutlook,
    SmallSet,
    SplitIdea,
    Together,
    WeakClass,
)
from fedul.evaluation.set_information import ExpectedRows, at_boundary, in_the_open, over_pairs, ratio, split
from fedul.federation import Federation, UnlabeledSets
from fedul.priors import Matrix

SURE = 0.95
"""Rows where one of two classes is so likely stand for data in which classes are easy to tell apart."""

WORST_PAIRS = 5
SMALL_SET = 5
"""A set with fewer rows hardly says anything."""

RARE, ALIKE, FEW_ROWS = 0.02, 0.02, 20
"""A class is weak below this share in every set, this difference between sets of a client, or this many rows."""


def outlook(federation: Federation) -> Outlook:
    """What can be said of a federation before training; a thousand clients take about a second.

    >>> import torch
    >>> from fedul.federation import UnlabeledSets
    >>> north = UnlabeledSets.from_arrays("north", torch.rand(90, 3), [0] * 45 + [1] * 45, [[0.9, 0.1], [0.1, 0.9]])
    >>> found = outlook(Federation([north], ["flu", "cold"]))
    >>> found.verdict, found.forecast.rows, found.forecast.labels_worth_low, found.forecast.labels_worth_high
    ('enough', 72, 18, 46)
    """
    expected = ExpectedRows.of(federation)
    matrices = [client.priors for client in federation.clients]
    together = Together(
        clients=len(matrices),
        rows=sum(len(client.train) for client in federation.clients),
        sets=len(expected.rows),
        rank=prior_tools.joint_rank(matrices),
        classes=len(federation.classes),
    )
    undecided = at_boundary(expected)
    sure = at_boundary(expected, SURE).pairs
    # What sets are worth between two classes at rows of different kinds: data has rows of all kinds. (V, K, K)
    views = np.stack([undecided.pairs, sure, sure.T, in_the_open(expected)])
    pairs = _worst_pairs(federation, expected, views)
    found = Outlook(
        identifiable=together.rank == together.classes - 1,
        together=together,
        forecast=_forecast(federation, views, together),
        clients=tuple(_clients(federation, undecided.clients)),
        pairs=pairs,
        near_duplicates=tuple(pair for client in federation.clients for pair in _near_duplicates(client)),
        weak_classes=tuple(_weak_classes(federation, expected)),
        small_sets=tuple(_small_sets(federation)),
        split=_split(federation, expected, pairs[0]),
    )
    return replace(found, summary=summary(found), advice=tuple(advice(found)))


def _clients(federation: Federation, efficiencies: Matrix) -> Iterator[ClientOutlook]:
    for client, efficiency in zip(federation.clients, efficiencies, strict=True):
        found = prior_tools.diagnose(client.priors)
        condition = found.condition if np.isfinite(found.condition) else None
        share = prior_tools.information(client.priors, client.set_priors)
        rows = len(client.train)
        yield ClientOutlook(client.name, rows, found.sets, found.rank, condition, share, float(efficiency))


def _forecast(federation: Federation, views: Matrix, together: Together) -> Forecast:
    """From the worst to the best of the views; a row in several sets says several times what it says in one."""
    distinct = sum(len(np.unique(client.train.index.numpy())) for client in federation.clients)
    shares = [over_pairs(view, federation.test_prior) for view in views]
    if together.rank < together.classes - 1:
        shares = [0.0]
    low, high = (min(1.0, share * together.rows / distinct) for share in (min(shares), max(shares)))
    return Forecast(distinct, round(low * distinct), round(high * distinct), low, high)


def _worst_pairs(federation: Federation, expected: ExpectedRows, views: Matrix) -> tuple[PairOutlook, ...]:
    low, high = views.min(axis=0), views.max(axis=0)
    first, second = np.triu_indices(len(federation.classes), 1)
    worst = np.lexsort((high[first, second], low[first, second].round(6)))[:WORST_PAIRS]
    names = federation.classes
    return tuple(
        PairOutlook(names[a], names[b], float(low[a, b]), float(high[a, b]), _contrast(expected, a, b))
        for a, b in zip(first[worst], second[worst], strict=True)
    )


def _contrast(expected: ExpectedRows, a: int, b: int) -> float:
    """The standard deviation within clients of the share of a among a and b, over the rows that are of either."""
    first, both = expected.rows[:, a], expected.rows[:, a] + expected.rows[:, b]
    means = ratio(expected.by_client(first), expected.by_client(both))[expected.client_of]
    squares = both * (ratio(first, both) - means) ** 2
    return float(np.sqrt(squares.sum() / both.sum()))


def _split(federation: Federation, expected: ExpectedRows, pair: PairOutlook) -> SplitIdea | None:
    """The set to split; every set, where a single one would not change the better end by a tenth."""
    a, b = federation.classes.index(pair.first), federation.classes.index(pair.second)
    best = split(expected, a, b, everywhere=False)
    if best.shift == 0:
        return None
    low, high = _worth_then(best.after, a, b)
    if high < 1.1 * pair.high and len(expected.rows) > 1:
        low, high = _worth_then(split(expected, a, b, everywhere=True).after, a, b)
        return SplitIdea(None, None, round(expected.rows.sum()), best.shift, low, high)
    at = int(best.sets[0])
    number = int(expected.client_of[at])
    client = federation.clients[number]
    name = client.set_names[at - int(expected.starts[number])]
    return SplitIdea(client.name, name, round(expected.sizes[at]), best.shift, low, high)


def _worth_then(after: ExpectedRows, a: int, b: int) -> tuple[float, float]:
    """What a row is worth between two classes, from and to; on their boundary no other class matters."""
    two = ExpectedRows(after.rows[:, [a, b]], after.starts, after.test_prior[[a, b]])
    sure = at_boundary(two, SURE).pairs
    found = [at_boundary(two).pairs[0, 1], sure[0, 1], sure[1, 0], in_the_open(after)[a, b]]
    return float(min(found)), float(max(found))


def _near_duplicates(client: UnlabeledSets) -> Iterator[NearDuplicates]:
    """Each set is compared with the three that are nearest, so that ten thousand sets are no trouble."""
    priors, sets = client.priors, len(client.priors)
    if sets == 1:
        return
    sizes = len(client.train) * client.set_priors
    neighbours = cKDTree(priors).query(priors, k=min(4, sets), p=1)[1]
    ends = np.sort(np.stack([np.repeat(np.arange(sets), neighbours.shape[1]), neighbours.ravel()], axis=1), axis=1)
    m, n = np.unique(ends[ends[:, 0] < ends[:, 1]], axis=0).T
    distances = np.abs(priors[m] - priors[n]).sum(axis=1) / 2
    first, second = sizes[m, None], sizes[n, None]
    mean = (first * priors[m] + second * priors[n]) / (first + second)
    deviations = np.sqrt(mean * (1 - mean) * (1 / first + 1 / second))
    chances = deviations.sum(axis=1) / np.sqrt(2 * np.pi)  # half of the expected sum of absolute normal differences
    close = np.flatnonzero(distances < np.maximum(SAME_MIX, chances))
    names = client.set_names
    for i in close[np.argsort(distances[close], kind="stable")].tolist():
        yield NearDuplicates(client.name, names[m[i]], names[n[i]], float(distances[i]), float(chances[i]))


def _weak_classes(federation: Federation, expected: ExpectedRows) -> Iterator[WeakClass]:
    """The gravest reason for each class that has one."""
    shares = expected.rows / expected.sizes[:, None]
    most, least = (which.reduceat(shares, expected.starts, axis=0) for which in (np.maximum, np.minimum))
    figures = zip(shares.max(axis=0), (most - least).max(axis=0), expected.rows.sum(axis=0), strict=True)
    for name, (highest, difference, rows) in zip(federation.classes, figures, strict=True):
        if rows < FEW_ROWS:
            yield WeakClass(name, "few rows", float(rows))
        elif highest < RARE:
            yield WeakClass(name, "rare", float(highest))
        elif difference < ALIKE:
            yield WeakClass(name, "alike", float(difference))


def _small_sets(federation: Federation) -> Iterator[SmallSet]:
    for client in federation.clients:
        sizes = np.bincount(client.train.sets.numpy(), minlength=len(client.priors))
        for m in np.flatnonzero(sizes < SMALL_SET).tolist():
            yield SmallSet(client.name, client.set_names[m], int(sizes[m]))
