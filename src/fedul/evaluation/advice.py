"""Verdict, summary and advice of `fedul check`, from its diagnostics."""

from __future__ import annotations

import math
from collections.abc import Iterator

from fedul._utils.display import counted
from fedul.core import Matrix
from fedul.errors import list_names
from fedul.evaluation.check_result import (
    CheckResult,
    Forecast,
    PairCheck,
    Verdict,
    format_share_range,
)
from fedul.training.choice import FEWEST

LABELS_PER_CLASS = 5
"""With fewer labels or rows per class than this, even labelled data would not do."""

FEW_LABELS_PER_CLASS = 20
"""With fewer labels per class than this, a classifier may be weak."""

FEW_ROWS = 20
"""A class with fewer rows than this is learned badly, even from labels."""

SAME_MIX = 0.01
"""Priors that are closer than this in total variation count as equal."""

GOOD = 0.5
"""A pair of classes between which a row is worth this share of a label needs no help."""

MAX_NAMES = 3
"""Names in a list; the others are counted."""

COARSE = 0.2
"""Rounding errors of priors matter if they are larger than this share of the difference between sets."""


def find_verdict(forecast: Forecast, class_rows: Matrix, *, identifiable: bool) -> Verdict:
    """Return whether the rows are worth enough labels; `class_rows` are the rows to be expected of each class (K,)."""
    classes, fewest = len(class_rows), float(class_rows.min())
    if not identifiable or fewest < LABELS_PER_CLASS or forecast.labels_worth_high < LABELS_PER_CLASS * classes:
        return "not enough"
    few = fewest < FEW_ROWS or forecast.labels_worth_low < FEW_LABELS_PER_CLASS * classes
    return "weak" if few else "enough"


def write_summary(result: CheckResult) -> str:
    """Return the verdict in one sentence."""
    forecast, classes = result.forecast, result.totals.classes
    verdict = result.verdict.capitalize()
    if not result.identifiable:
        return f"{verdict}: with these class priors, the classes cannot be told apart."
    worth = f"the {forecast.rows:,} rows are worth {_labels(forecast)}"
    if forecast.labels_worth_high:
        worth += f" ({format_share_range(forecast.share_low, forecast.share_high)})"
    rarest = min(result.classes, key=lambda each: each.rows)
    if rarest.rows < FEW_ROWS:
        worth += f", and only about {counted(round(rarest.rows), 'row')} can be of class '{rarest.name}'"
    elif result.verdict == "not enough":
        worth += f", fewer than {LABELS_PER_CLASS * classes:,} ({LABELS_PER_CLASS} per class)"
    elif result.verdict == "weak":
        worth += f"; fewer than {FEW_LABELS_PER_CLASS * classes:,} ({FEW_LABELS_PER_CLASS} per class) are few"
    return f"{verdict}: {worth}."


def write_advice(result: CheckResult, sets_to_leave_out: int | None = None) -> tuple[str, ...]:
    """Return at least one sentence of advice, the most useful first.

    Parameters
    ----------
    result : CheckResult
        The diagnostics.
    sets_to_leave_out : int or None
        Sets on which training can compare settings; None if it compares none.
    """
    parts = (
        _not_identifiable,
        _other_comparison,
        _worst_pair,
        _few_rows,
        _single_sets,
        _weak_classes,
        _near_duplicates,
        _small_sets,
        _coarse_priors,
    )
    advice = [sentence for part in parts for sentence in part(result)]
    if not advice:
        advice.append("No problem was found: train, and compare the metrics of the run with this forecast.")
    if sets_to_leave_out is not None and sets_to_leave_out < FEWEST:
        advice.append(
            f"By default a linear model is trained: {counted(sets_to_leave_out, 'set')} can be left out to compare it "
            f"with a larger network, and {FEWEST} are needed. With few sets a larger network recognises sets instead "
            "of classes."
        )
    return tuple(advice)


def _labels(forecast: Forecast) -> str:
    low, high = forecast.labels_worth_low, forecast.labels_worth_high
    if not high:
        return "less than one labelled row"
    return f"about {low:,} labelled ones" if low == high else f"about {low:,} to {high:,} labelled ones"


def _compares_all(result: CheckResult) -> bool:
    return result.compared == "all sets"


def _has_one_set_each(result: CheckResult) -> bool:
    """Return whether no set can be compared, because every client has one and only sets of a client are compared."""
    one = 1 if _compares_all(result) else result.totals.clients
    return result.totals.sets == one


def _not_identifiable(result: CheckResult) -> Iterator[str]:
    totals = result.totals
    if result.identifiable:
        return
    needed = totals.classes - 1
    between = "between the sets" if _compares_all(result) else "between the sets of a client"
    yield (
        f"However many rows there are, these class priors do not determine a classifier: {between}, class mixes differ "
        f"in {totals.rank} of the {needed} independent ways that {totals.classes} classes need."
    )
    if _has_one_set_each(result):
        all_sets = "There is one set" if totals.sets == 1 else "Every client has one set"
        yield (
            f"{all_sets}, and one set has nothing to be compared with: split the rows of at least one client into "
            f"{totals.classes} sets whose class mixes differ (by month, ward, device, ...)."
        )
        return
    unseen = [pair for pair in result.pairs if pair.low == 0]
    if unseen:
        more = needed - totals.rank
        where = "" if _compares_all(result) else ", at clients that have a set already,"
        yield (
            f"Not told apart: {list_names(map(_quote, unseen), MAX_NAMES)}. {more} more "
            f"{'set' if more == 1 else 'sets'} with another class mix{where} would do."
        )


def _other_comparison(result: CheckResult) -> Iterator[str]:
    """What the rows are worth with the sets of all clients compared, and with those of each client."""
    pooled, within = result.pooled, result.within_clients
    if pooled is None or within is None or result.totals.clients == 1:
        return
    if pooled.forecast.labels_worth_high <= 1.1 * within.forecast.labels_worth_high:
        return
    if _compares_all(result):
        yield (
            "The default method compares the sets of all clients. If only the sets of each client are compared "
            "(--method fedul, or sites on Flower without class-mix), the rows are worth "
            f"{_labels(within.forecast)}: {within.verdict}."
        )
    else:
        yield (
            "Only the sets of each client are compared here. If the rows of all clients can be given as one client, "
            f"they are worth {_labels(pooled.forecast)}: {pooled.verdict}."
        )


def _worst_pair(result: CheckResult) -> Iterator[str]:
    pair = result.pairs[0]
    if pair.high >= GOOD or _has_one_set_each(result):
        return
    sets = "From set to set" if _compares_all(result) else "From set to set of a client"
    varies = f"varies by {pair.contrast:.2g} (standard deviation)" if pair.contrast >= 5e-4 else "does not vary"
    yield (
        f"Hardest to tell apart are {_quote(pair)}: a row is worth {format_share_range(pair.low, pair.high)} of a "
        f"label there. {sets}, the share of '{pair.first}' among the two {varies}; sets that differ more in it would "
        "help most."
    )
    if result.split is not None:
        split = result.split
        which = (
            f"all {counted(result.totals.sets, 'set')} were split in two"
            if split.client is None
            else f"set '{split.name}' of client '{split.client}' ({counted(split.rows, 'row')}) were split in two"
        )
        yield (
            f"If {which} by something that goes with '{pair.first}' rather than '{pair.second}', and the halves "
            f"differed by {2 * split.shift:.2g} in the share of both, a row would be worth "
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
        f"All rows may be worth as few as {counted(forecast.labels_worth_low, 'label')}; fewer than {wanted:,} "
        f"({LABELS_PER_CLASS} per class) are few. {remedy} would make up for it."
    )


def _single_sets(result: CheckResult) -> Iterator[str]:
    single = [client for client in result.clients if client.sets == 1]
    if single and len(single) < result.totals.clients and not _compares_all(result):
        rows, names = sum(client.rows for client in single), [f"'{client.client}'" for client in single]
        yield (
            f"{counted(len(single), 'client')} with one set only ({list_names(names, MAX_NAMES)}; "
            f"{counted(rows, 'row')}) cannot contribute: one set has nothing to be compared with. Split it in two."
        )


def _weak_classes(result: CheckResult) -> Iterator[str]:
    if _has_one_set_each(result):  # then this is true of every class
        return
    alike = "in all sets" if _compares_all(result) else "in all sets of each client"
    for why, sentence in (
        ("few rows", "Fewer rows than a classifier can learn from are to be expected of {}."),
        ("rare", "No set has more than a trace of {}."),
        ("alike", f"Equally common {alike}, so that sets do not tell them apart: {{}}."),
    ):
        weak = [f"'{c.name}' ({_value_text(c.why, c.value)})" for c in result.weak_classes if c.why == why]
        if weak:
            yield f"{sentence.format(list_names(weak, MAX_NAMES))} Look for rows or sets with more of it."


def _near_duplicates(result: CheckResult) -> Iterator[str]:
    """Sets with equal mixes do not inform about each other; mixes that differ a little do, if the priors are exact."""
    equal, close = list[str](), list[str]()
    for d in result.near_duplicates:
        (equal if d.distance < SAME_MIX else close).append(f"'{d.first}' and '{d.second}' of client '{d.client}'")
    if equal:
        yield (
            f"{counted(len(equal), 'pair')} of sets with the same class mix: {list_names(equal, MAX_NAMES)}. "
            "They count as one set; another way to split their rows would inform more."
        )
    if close:
        yield (
            f"{counted(len(close), 'pair')} of sets whose class mixes differ by no more than chance explains in sets "
            f"of this size: {list_names(close, MAX_NAMES)}. This is fine if the priors are exact; if they were "
            "estimated from as few rows, merge the sets."
        )


def _small_sets(result: CheckResult) -> Iterator[str]:
    if result.small_sets:
        names = [f"'{s.name}' of client '{s.client}' ({s.rows})" for s in result.small_sets]
        yield (
            f"{counted(len(names), 'set')} with hardly any rows: {list_names(names, MAX_NAMES)}. Add rows, or merge "
            "similar sets."
        )


def _coarse_priors(result: CheckResult) -> Iterator[str]:
    rounding, contrast = (0.0 if result.priors is None else result.priors.rounding), result.pairs[0].contrast
    if rounding > COARSE * contrast > 0:
        yield (
            f"The class priors are rounded to {format_share_range(2 * rounding, 2 * rounding)}, and shares differ by "
            f"{format_share_range(contrast, contrast)} between sets: priors with more decimals would help."
        )


def _value_text(why: str, value: float) -> str:
    return f"about {counted(round(value), 'row')}" if why == "few rows" else format_share_range(value, value)


def _quote(pair: PairCheck) -> str:
    return f"'{pair.first}' and '{pair.second}'"
