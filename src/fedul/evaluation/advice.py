"""Advice from what was found of a federation: sentences, the most useful first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from fedul.evaluation.findings import LABELS_A_CLASS, SAME_MIX, Outlook, PairOutlook, share_range

GOOD = 0.5
"""A pair of classes between which a row is worth this share of a label needs no help."""

NAMED = 3
"""So many are named; the others are counted."""


def advice(found: Outlook) -> Iterator[str]:
    """What to do about it; at least one sentence."""
    said = False
    for part in (_not_identifiable, _worst_pair, _few_rows, _single_sets, _weak_classes, _near_duplicates, _small_sets):
        for sentence in part(found):
            said = True
            yield sentence
    if not said:
        yield "Nothing stands in the way: train, and compare the figures of the run with this forecast."


def summary(found: Outlook) -> str:
    """The verdict in one sentence."""
    forecast = found.forecast
    if not found.identifiable:
        return "Not enough: with these class priors, the classes cannot be told apart."
    counts = f"{forecast.labels_worth_low:,} to {forecast.labels_worth_high:,}"
    worth = f"{forecast.rows:,} rows are worth about {counts} labelled ones"
    if found.verdict == "not enough":
        return f"Not enough: all {worth}, fewer than {LABELS_A_CLASS} a class."
    share = share_range(forecast.share_low, forecast.share_high)
    if found.verdict == "costly":
        return f"Enough, but costly: the priors determine a classifier, and the {worth} ({share})."
    return f"Enough: the {worth} ({share})."


def _not_identifiable(found: Outlook) -> Iterator[str]:
    together = found.together
    if found.identifiable:
        return
    needed = together.classes - 1
    yield (
        f"However many rows there are, these class priors do not determine a classifier: between the sets of a "
        f"client, class mixes differ in {together.rank} of the {needed} independent ways that {together.classes} "
        f"classes need."
    )
    if together.sets == together.clients:
        yield (
            "Every client has one set, and one set has nothing to be compared with: split the rows of at least one "
            f"client into {together.classes} sets whose class mixes differ (by month, ward, device, ...)."
        )
        return
    unseen = [pair for pair in found.pairs if pair.low == 0]
    if unseen:
        more = needed - together.rank
        yield (
            f"Not told apart: {_listed([_named(pair) for pair in unseen])}. {more} more "
            f"{'set' if more == 1 else 'sets'} with another class mix, at clients that have a set already, would do."
        )


def _worst_pair(found: Outlook) -> Iterator[str]:
    pair = found.pairs[0]
    if pair.high >= GOOD or found.together.sets == found.together.clients:
        return
    yield (
        f"Hardest to tell apart are {_named(pair)}: a row is worth {share_range(pair.low, pair.high)} of a label "
        f"there. From set to set of a client, the share of '{pair.first}' among the two varies by {pair.contrast:.2f} "
        "(standard deviation); sets that differ more in it would help most."
    )
    if found.split is not None:
        split = found.split
        which = "every set" if split.client is None else f"set '{split.name}' of client '{split.client}'"
        yield (
            f"Splitting {which} ({split.rows:,} rows) by something that goes with '{pair.first}' rather than "
            f"'{pair.second}', into halves that differ by up to {2 * split.shift:.2g} in both, would make a row worth "
            f"{share_range(split.low, split.high)} of a label there."
        )
    elif pair.high == 0:
        yield f"No set has both '{pair.first}' and '{pair.second}': a client needs sets with different shares of both."


def _few_rows(found: Outlook) -> Iterator[str]:
    forecast, wanted = found.forecast, LABELS_A_CLASS * found.together.classes
    if not found.identifiable or forecast.labels_worth_low >= wanted:
        return
    times = wanted / forecast.labels_worth_low if forecast.labels_worth_low else math.inf
    remedy = "Sets that differ more" if times > 100 else f"{times:.1f} times as many rows, or sets that differ more,"
    yield (
        f"All rows together may be worth as few as {forecast.labels_worth_low:,} labels, and less than {wanted:,} "
        f"({LABELS_A_CLASS} a class) is little. {remedy} would make up for it."
    )


def _single_sets(found: Outlook) -> Iterator[str]:
    single = [client for client in found.clients if client.sets == 1]
    if single and len(single) < found.together.clients:
        rows, names = sum(client.rows for client in single), _listed([f"'{client.client}'" for client in single])
        yield (
            f"{_some(len(single), 'client')} with one set only ({names}; "
            f"{rows:,} rows) cannot contribute: one set has nothing to be compared with. Split it in two."
        )


def _weak_classes(found: Outlook) -> Iterator[str]:
    if found.together.sets == found.together.clients:  # with one set a client, all classes are alike in all of them
        return
    for why, sentence in (
        ("few rows", "fewer rows than a classifier can learn from are to be expected of {}"),
        ("rare", "no set has more than a trace of {}"),
        ("alike", "equally common in all sets of each client, so that no comparison of sets speaks of it: {}"),
    ):
        weak = [f"'{c.name}' ({_value(c.why, c.value)})" for c in found.weak_classes if c.why == why]
        if weak:
            text = sentence.format(_listed(weak))
            yield f"{text[0].upper()}{text[1:]}. Look for rows or sets with more of it."


def _near_duplicates(found: Outlook) -> Iterator[str]:
    """Equal mixes say nothing of each other; mixes that differ a little do, if the figures are exact."""
    equal, close = list[str](), list[str]()
    for d in found.near_duplicates:
        (equal if d.distance < SAME_MIX else close).append(f"'{d.first}' and '{d.second}' of client '{d.client}'")
    if equal:
        yield (
            f"{_some(len(equal), 'pair')} of sets with the same class mix: {_listed(equal)}. "
            "They count as one set; another way to split their rows would say more."
        )
    if close:
        yield (
            f"{_some(len(close), 'pair')} of sets with class mixes as close as chance makes those of so few rows: "
            f"{_listed(close)}. That is fine if the priors are exact; if they were estimated from rows as few as "
            "these, merge the sets."
        )


def _small_sets(found: Outlook) -> Iterator[str]:
    if found.small_sets:
        named = [f"'{s.name}' of client '{s.client}' ({s.rows})" for s in found.small_sets]
        yield f"{_some(len(named), 'set')} with hardly any rows: {_listed(named)}. Give rows, or merge with a like set."


def _value(why: str, value: float) -> str:
    return f"{value:.0f} rows" if why == "few rows" else share_range(value, value)


def _named(pair: PairOutlook) -> str:
    return f"'{pair.first}' and '{pair.second}'"


def _some(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
