"""`fedul.check`: whether sets and class priors are enough to train on, and how many labels the rows are worth.

Only the sizes of sets and their class priors are used, not the rows. `set_information` computes the information of
sets; `advice` writes the sentences.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from scipy.spatial import cKDTree

from fedul.core import Federation, Matrix, Study, UnlabeledSets
from fedul.core import priors as prior_tools
from fedul.evaluation.advice import FEW_ROWS, SAME_MIX, find_verdict, write_advice, write_summary
from fedul.evaluation.check_result import (
    CheckResult,
    ClientCheck,
    FederationTotals,
    Forecast,
    NearDuplicates,
    PairCheck,
    SetComparison,
    SmallSet,
    SuggestedSplit,
    WeakClass,
)
from fedul.evaluation.reading import pools_sets, read_data, sets_to_leave_out
from fedul.evaluation.set_information import (
    ExpectedRows,
    at_boundary,
    at_uninformative_inputs,
    average_over_pairs,
    ratio,
    split,
)
from fedul.methods.base import Method

SURE = 0.95
"""Probability of one of two classes at rows that stand for data in which classes are easy to tell apart."""

WORST_PAIRS = 5
SMALL_SET = 5
"""A set with fewer rows is small."""

RARE, EQUAL = 0.02, 0.02
"""A class is weak below this share in every set, or this difference between the sets that are compared."""


def check(data: Study | Federation, *, method: str | Method | None = None) -> CheckResult:
    """Diagnose data and priors before training.

    Parameters
    ----------
    data : Study or Federation
        What `fedul.load` returns, or a federation made from arrays.
    method : str or Method, optional
        The method that the verdict is for; by default that of `fedul.train`.

    Returns
    -------
    CheckResult
        Verdict, advice and the numbers behind them. ``print(result)`` shows what ``fedul check`` prints.

    Examples
    --------
    >>> import fedul
    >>> fedul.check(fedul.load("digits", clients=2, rows=400)).identifiable
    True
    """
    study = Study.of(data)
    federation = study.federation
    pools = pools_sets(federation, method)
    by_client = ExpectedRows.of(federation)
    pooled = by_client.pooled()
    efficiencies, within_views = compare_sets(by_client)
    _, pooled_views = compare_sets(pooled)
    within, over_all = _weigh(federation, by_client, within_views), _weigh(federation, pooled, pooled_views)
    used, views, chosen = (pooled, pooled_views, over_all) if pools else (by_client, within_views, within)
    pairs = _find_worst_pairs(federation, used, views)
    result = CheckResult(
        verdict=chosen.verdict,
        summary="",
        advice=(),
        identifiable=chosen.identifiable,
        totals=FederationTotals(
            clients=len(federation.clients),
            rows=sum(len(client.train) for client in federation.clients),
            sets=len(used.rows),
            rank=chosen.rank,
            classes=len(federation.classes),
        ),
        forecast=chosen.forecast,
        clients=tuple(_check_clients(federation, efficiencies)),
        pairs=pairs,
        near_duplicates=tuple(pair for client in federation.clients for pair in _find_near_duplicates(client)),
        weak_classes=tuple(_find_weak_classes(federation, used)),
        small_sets=tuple(_find_small_sets(federation)),
        split=_find_split(federation, used, pairs[0]),
        warnings=tuple(study.warnings),
        compared="all sets" if pools else "sets of a client",
        pooled=over_all,
        within_clients=within,
        **read_data(study, by_client),
    )
    return replace(result, summary=write_summary(result), advice=write_advice(result, sets_to_leave_out(federation)))


def compare_sets(expected: ExpectedRows) -> tuple[Matrix, Matrix]:
    """Return the efficiency of each client (C,), and of each pair of classes for V kinds of rows (V, K, K).

    Data contains rows of all kinds.
    """
    undecided = at_boundary(expected)
    sure = at_boundary(expected, SURE).pairs
    return undecided.clients, np.stack([undecided.pairs, sure, sure.T, at_uninformative_inputs(expected)])


def _weigh(federation: Federation, expected: ExpectedRows, views: Matrix) -> SetComparison:
    """Return what can be learned from the sets that are compared."""
    priors = np.concatenate([client.priors for client in federation.clients])
    rank = prior_tools.joint_rank(np.split(priors, expected.starts[1:]))
    identifiable = rank == len(federation.classes) - 1
    forecast = _forecast(federation, views if identifiable else np.zeros_like(views))
    verdict = find_verdict(forecast, expected.rows.sum(axis=0), identifiable=identifiable)
    return SetComparison(verdict, identifiable, rank, forecast)


def _check_clients(federation: Federation, efficiencies: Matrix) -> Iterator[ClientCheck]:
    for client, efficiency in zip(federation.clients, efficiencies, strict=True):
        ranks = prior_tools.diagnose_priors(client.priors)
        condition = ranks.condition if np.isfinite(ranks.condition) else None
        share = prior_tools.class_information(client.priors, client.set_priors)
        rows = len(client.train)
        yield ClientCheck(client.name, rows, ranks.sets, ranks.rank, condition, share, float(efficiency))


def _forecast(federation: Federation, views: Matrix) -> Forecast:
    """Return the range over the views; a row that is in several sets contributes once per set."""
    rows = sum(len(client.train) for client in federation.clients)
    distinct = sum(len(np.unique(client.train.index.numpy())) for client in federation.clients)
    shares = [average_over_pairs(view, federation.test_prior) for view in views]
    low, high = (min(1.0, share * rows / distinct) for share in (min(shares), max(shares)))
    return Forecast(distinct, round(low * distinct), round(high * distinct), low, high)


def _find_worst_pairs(federation: Federation, expected: ExpectedRows, views: Matrix) -> tuple[PairCheck, ...]:
    low, high = views.min(axis=0), views.max(axis=0)
    first, second = np.triu_indices(len(federation.classes), 1)
    worst = np.lexsort((high[first, second], low[first, second].round(6)))[:WORST_PAIRS]
    names = federation.classes
    return tuple(
        PairCheck(names[a], names[b], float(low[a, b]), float(high[a, b]), _contrast(expected, a, b))
        for a, b in zip(first[worst], second[worst], strict=True)
    )


def _contrast(expected: ExpectedRows, a: int, b: int) -> float:
    """Return the standard deviation within clients of the share of a among a and b, weighted by their rows."""
    first, both = expected.rows[:, a], expected.rows[:, a] + expected.rows[:, b]
    means = ratio(expected.by_client(first), expected.by_client(both))[expected.client_of]
    squares = both * (ratio(first, both) - means) ** 2
    return float(np.sqrt(squares.sum() / both.sum()))


def _find_split(federation: Federation, expected: ExpectedRows, pair: PairCheck) -> SuggestedSplit | None:
    """Return the set to split; every set if a single one would improve the upper end by less than 10 %."""
    a, b = federation.classes.index(pair.first), federation.classes.index(pair.second)
    best = split(expected, a, b, everywhere=False)
    if best.shift == 0:
        return None
    low, high = _worth_after_split(best.after, a, b)
    if high < 1.1 * pair.high and len(expected.rows) > 1:
        low, high = _worth_after_split(split(expected, a, b, everywhere=True).after, a, b)
        return SuggestedSplit(None, None, round(expected.rows.sum()), best.shift, low, high)
    at = int(best.sets[0])
    client, name = [(each.name, name) for each in federation.clients for name in each.set_names][at]
    return SuggestedSplit(client, name, round(expected.sizes[at]), best.shift, low, high)


def _worth_after_split(after: ExpectedRows, a: int, b: int) -> tuple[float, float]:
    """Return the range of labels that a row is worth between two classes; on their boundary no other class matters."""
    two = ExpectedRows(after.rows[:, [a, b]], after.starts, after.test_prior[[a, b]])
    sure = at_boundary(two, SURE).pairs
    values = [at_boundary(two).pairs[0, 1], sure[0, 1], sure[1, 0], at_uninformative_inputs(after)[a, b]]
    return float(min(values)), float(max(values))


def _find_near_duplicates(client: UnlabeledSets) -> Iterator[NearDuplicates]:
    """Yield pairs of similar sets; each set is compared only with its three nearest, which is fast for many sets."""
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


def _find_weak_classes(federation: Federation, expected: ExpectedRows) -> Iterator[WeakClass]:
    """Yield each weak class once, with its most serious reason."""
    shares = expected.rows / expected.sizes[:, None]
    most, least = (which.reduceat(shares, expected.starts, axis=0) for which in (np.maximum, np.minimum))
    values = zip(shares.max(axis=0), (most - least).max(axis=0), expected.rows.sum(axis=0), strict=True)
    for name, (highest, difference, rows) in zip(federation.classes, values, strict=True):
        if rows < FEW_ROWS:
            yield WeakClass(name, "few rows", float(rows))
        elif highest < RARE:
            yield WeakClass(name, "rare", float(highest))
        elif difference < EQUAL:
            yield WeakClass(name, "alike", float(difference))


def _find_small_sets(federation: Federation) -> Iterator[SmallSet]:
    for client in federation.clients:
        sizes = np.bincount(client.train.sets.numpy(), minlength=len(client.priors))
        for m in np.flatnonzero(sizes < SMALL_SET).tolist():
            yield SmallSet(client.name, client.set_names[m], int(sizes[m]))
