"""The estimated confusion matrix, and recall and precision of each class, with intervals."""

from __future__ import annotations

from fedul.report.facts import TOO_LITTLE, Facts
from fedul.report.judged import Estimate, Evaluation
from fedul.report.markup import Cell, Cells, Html, Row, command, element, joined, paragraph, section, table, words
from fedul.report.svg import interval_mark
from fedul.report.wording import interval, percent


def accuracy_section(facts: Facts) -> Html:
    """What is taken for what, and how sure that is."""
    title = "Estimated confusion matrix"
    evaluation = facts.evaluation
    if evaluation is None:
        how = ["Not estimated yet. It needs no labels, only the run's data: ", command(facts.evaluate_command), "."]
        return section("confusion", title, paragraph(f"Not known: {TOO_LITTLE}." if facts.across_sites else how))
    if not (evaluation.confusion or evaluation.recall or evaluation.precision):
        why = "Figures by class would tell of the sites' class priors, so no site sends any."
        said = "Not known: only the accuracy as a whole was estimated."
        return section("confusion", title, paragraph(f"{said} {why}" if facts.across_sites else said))
    return section(
        "confusion",
        title,
        paragraph(
            "Estimated without labels: how often a case of each class is taken for each class, from what the "
            "classifier predicts in sets of known class mix. Intervals hold the true value in 95 % of such studies."
        ),
        _matrix(evaluation) if evaluation.confusion else None,
        _outside(evaluation),
        _by_class(evaluation),
    )


def _matrix(evaluation: Evaluation) -> Html:
    rows = []
    for k, name in enumerate(evaluation.classes):
        cells = []
        for j, value in enumerate(evaluation.confusion[k]):
            low, high = (ends[k][j] if ends else None for ends in (evaluation.confusion_low, evaluation.confusion_high))
            range_ = None if low is None else element("span", interval(low, high), class_="range")
            shown = percent(value)
            content = joined([element("strong", shown) if j == k else element("span", shown), range_])
            cells.append(Cell(content, share=value))
        rows.append(Row([words(name)], cells))
    caption = "Share of the cases of a class (row) that are taken for each class (column); 95 % interval below"
    heads: Cells = [words("true class"), *(f"taken for {name}" for name in evaluation.classes)]
    return table("confusion-table", caption, heads, rows, kind="map")


def _outside(evaluation: Evaluation) -> Html | None:
    """Why a share may be below zero, where one is."""
    if not any(value is not None and not 0 <= value <= 1 for row in evaluation.confusion for value in row):
        return None
    return paragraph(
        "Each share is estimated freely, so that one near 0 or 100 % may come out slightly beyond.", kind="note"
    )


def _by_class(evaluation: Evaluation) -> Html | None:
    if not evaluation.recall and not evaluation.precision:
        return None
    rows = []
    for name in evaluation.classes:
        cells: list[str | Html] = []
        for estimates in (evaluation.recall, evaluation.precision):
            found = estimates.get(name, Estimate(None))
            cells += [_with_interval(found), interval_mark(found.value, found.low, found.high)]
        rows.append(Row([words(name)], cells))
    mark = element("span", "drawn from 0 to 100 %", class_="hidden")
    heads: Cells = [words("class"), "found (recall)", mark, "right when predicted (precision)", mark]
    return table("classes-table", "How much of each class is found, and how often its name is right", heads, rows)


def _with_interval(found: Estimate) -> Html:
    range_ = None if found.low is None else element("span", interval(found.low, found.high), class_="range")
    return joined([element("span", percent(found.value)), range_])
