"""Verdict, summary and advice of `fedul check`, from its diagnostics."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from fedul._utils.display import counted
from fedul.evaluation.check_result import CheckResult, Forecast, PairCheck, Verdict, format_share_range

LABELS_PER_CLASS = 5
"""With fewer labels per class than this, even labelled data would not do."""

COSTLY = 0.1
"""A row that may be worth less than this share of a label is worth little."""

SAME_MIX = 0.01
"""Priors that are closer than this in total variation count as equal."""

GOOD = 0.5
"""A pair of classes between which a row is worth this share of a label needs no help."""

MAX_NAMES = 3
"""Names in a list; the others are counted."""


def find_verdict(forecast: Forecast, classes: int, *, identifiable: bool) -> Verdict:
    """Return whether the rows are worth enough labels."""
    if not identifiable or forecast.labels_worth_high < LABELS_PER_CLASS * classes:
        return "not enough"
    few = forecast.labels_worth_low < LABELS_PER_CLASS * classes
    return "costly" if few or forecast.share_low < COSTLY else "enough"


def write_summary(result: CheckResult) -> str:
    """Return the verdict in one sentence."""
    forecast = result.forecast
    if not result.identifiable:
        return "Not enough: with these class priors, the classes cannot be told apart."
    counts = f"{forecast.labels_worth_low:,} to {forecast.labels_worth_high:,}"
    worth = f"{forecast.rows:,} rows are worth about {counts} labelled ones"
    if result.verdict == "not enough":
        return f"Not enough: all {worth}, fewer than {LABELS_PER_CLASS} per class."
    share = format_share_range(forecast.share_low, forecast.share_high)
    if result.verdict == "costly":
        return f"Enough, but costly: the priors determine a classifier, and the {worth} ({share})."
    return f"Enough: the {worth} ({share})."


def write_advice(result: CheckResult) -> tuple[str, ...]:
    """Return at least one sentence of advice, the most useful first."""
    parts = (_not_identifiable, _worst_pair, _few_rows, _single_sets, _weak_classes, _near_duplicates, _small_sets)
    advice = tuple(sentence for part in parts for sentence in part(result))
    return advice or ("No problem was found: train, and compare the metrics of the run with this forecast.",)


def _not_identifiable(result: CheckResult) -> Iterator[str]:
    totals = result.totals
    if result.identifiable:
        return
    needed = totals.classes - 1
    yield (
        f"However many rows there are, these class priors do not determine a classifier: between the sets of a "
        f"client, class mixes differ in {totals.rank} of the {needed} independent ways that {totals.classes} "
        f"classes need."
    )
    if totals.sets == totals.clients:
        yield (
            "Every client has one set, and one set has nothing to be compared with: split the rows of at least one "
            f"client into {totals.classes} sets whose class mixes differ (by month, ward, device, ...)."
        )
        return
    unseen = [pair for pair in result.pairs if pair.low == 0]
    if unseen:
        more = needed - totals.rank
        yield (
            f"Not told apart: {_join([_quote(pair) for pair in unseen])}. {more} more "
            f"{'set' if more == 1 else 'sets'} with another class mix, at clients that have a set already, would do."
        )


def _worst_pair(result: CheckResult) -> Iterator[str]:
    pair = result.pairs[0]
    if pair.high >= GOOD or result.totals.sets == result.totals.clients:
        return
    yield (
        f"Hardest to tell apart are {_quote(pair)}: a row is worth {format_share_range(pair.low, pair.high)} of a "
        f"label there. From set to set of a client, the share of '{pair.first}' among the two varies by "
        f"{pair.contrast:.2f} (standard deviation); sets that differ more in it would help most."
    )
    if result.split is not None:
        split = result.split
        which = "every set" if split.client is None else f"set '{split.name}' of client '{split.client}'"
        yield (
            f"Splitting {which} ({split.rows:,} rows) by something that goes with '{pair.first}' rather than "
            f"'{pair.second}', into halves that differ by up to {2 * split.shift:.2g} in both, would make a row worth "
            f"{format_share_range(split.low, split.high)} of a label there."
        )
    elif pair.high == 0:
        yield f"No set has both '{pair.first}' and '{pair.second}': a client needs sets with different shares of both."


def _few_rows(result: CheckResult) -> Iterator[str]:
    forecast, wanted = result.forecast, LABELS_PER_CLASS * result.totals.classes
    if not result.identifiable or forecast.labels_worth_low >= wanted:
        return
    times = wanted / forecast.labels_worth_low if forecast.labels_worth_low else math.inf
    remedy = "Sets that differ more" if times > 100 else f"{times:.1f} times as many rows, or sets that differ more,"
    yield (
        f"All rows together may be worth as few as {forecast.labels_worth_low:,} labels; fewer than {wanted:,} "
        f"({LABELS_PER_CLASS} per class) are few. {remedy} would make up for it."
    )


def _single_sets(result: CheckResult) -> Iterator[str]:
    single = [client for client in result.clients if client.sets == 1]
    if single and len(single) < result.totals.clients:
        rows, names = sum(client.rows for client in single), _join([f"'{client.client}'" for client in single])
        yield (
            f"{counted(len(single), 'client')} with one set only ({names}; "
            f"{rows:,} rows) cannot contribute: one set has nothing to be compared with. Split it in two."
        )


def _weak_classes(result: CheckResult) -> Iterator[str]:
    if result.totals.sets == result.totals.clients:  # with one set per client, this is true of every class
        return
    for why, sentence in (
        ("few rows", "Fewer rows than a classifier can learn from are to be expected of {}."),
        ("rare", "No set has more than a trace of {}."),
        ("alike", "Equally common in all sets of each client, so that sets do not tell them apart: {}."),
    ):
        weak = [f"'{c.name}' ({_value_text(c.why, c.value)})" for c in result.weak_classes if c.why == why]
        if weak:
            yield f"{sentence.format(_join(weak))} Look for rows or sets with more of it."


def _near_duplicates(result: CheckResult) -> Iterator[str]:
    """Sets with equal mixes do not inform about each other; mixes that differ a little do, if the priors are exact."""
    equal, close = list[str](), list[str]()
    for d in result.near_duplicates:
        (equal if d.distance < SAME_MIX else close).append(f"'{d.first}' and '{d.second}' of client '{d.client}'")
    if equal:
        yield (
            f"{counted(len(equal), 'pair')} of sets with the same class mix: {_join(equal)}. "
            "They count as one set; another way to split their rows would inform more."
        )
    if close:
        yield (
            f"{counted(len(close), 'pair')} of sets whose class mixes differ by no more than chance explains in sets "
            f"of this size: {_join(close)}. This is fine if the priors are exact; if they were estimated from as few "
            "rows, merge the sets."
        )


def _small_sets(result: CheckResult) -> Iterator[str]:
    if result.small_sets:
        names = [f"'{s.name}' of client '{s.client}' ({s.rows})" for s in result.small_sets]
        yield f"{counted(len(names), 'set')} with hardly any rows: {_join(names)}. Add rows, or merge similar sets."


def _value_text(why: str, value: float) -> str:
    return f"{value:.0f} rows" if why == "few rows" else format_share_range(value, value)


def _quote(pair: PairCheck) -> str:
    return f"'{pair.first}' and '{pair.second}'"


def _join(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more
