"""Learning curves: the losses, and the test error where labels exist, by round."""

from __future__ import annotations

import math

from fedul.report.facts import Facts
from fedul.report.markup import Cells, Html, Row, details, element, paragraph, section, table
from fedul.report.svg import Line, line_chart
from fedul.report.wording import number, percent

MOST_ROUNDS = 30
"""Rounds in the table; of more, some are left out evenly."""
SET_LOSS = "The loss says how badly the classifier tells which set a row is from, which can be seen without labels."
OTHER_LOSS = "The loss on training rows is what the clients minimise; on held-out rows, how badly sets are told apart."
CHOICES = {
    "held-out": "The round to deliver is chosen by rows that were held out from training.",
    "validation-error": "The round to deliver is the one with the fewest errors on labelled rows that were held out.",
    "last": "The last round is delivered.",
}


def learning_section(facts: Facts) -> Html:
    """How the run went, round by round."""
    title = "Learning curves"
    if not facts.history:
        return section("learning", title, paragraph("No round is finished yet."))
    losses = [
        line
        for label, key in (("training rows", "loss"), ("held-out rows", "held_out_loss"))
        if (line := _line(facts, label, key)).points
    ]
    errors = _line(facts, "test rows", "test_error")
    chosen = facts.selected_round
    charts = []
    if losses:
        what = " ".join(_course(line, "loss") for line in losses)
        chart = line_chart("loss-chart", "Loss by round", what, losses, written=_plain, marked=chosen)
        charts.append(_figure(chart, "Loss"))
    if errors.points:
        what = _course(errors, "error")
        chart = line_chart(
            "error-chart", "Test error by round", what, [errors], written=_percents, marked=chosen, from_zero=True
        )
        charts.append(_figure(chart, "Error on labelled test rows"))
    return section(
        "learning",
        title,
        paragraph(_explained(facts), " The test error was measured with labels." if errors.points else None),
        element("div", charts, class_="charts"),
        details("The figures of the rounds", _table(facts, with_error=bool(errors.points))),
    )


def _explained(facts: Facts) -> str:
    training = facts.config.get("training", {})
    loss = SET_LOSS if str(training.get("method")).startswith("fedul") else OTHER_LOSS
    return f"{loss} {CHOICES.get(str(training.get('select')), '')}"


def _line(facts: Facts, label: str, key: str) -> Line:
    pairs = [(float(line["round"]), line.get(key)) for line in facts.history]
    return Line(label, [(x, float(y)) for x, y in pairs if y is not None and math.isfinite(y)])


def _course(line: Line, what: str) -> str:
    (first, start), (last, end) = line.points[0], line.points[-1]
    low, at = min((y, x) for x, y in line.points)
    return (
        f"On {line.label} the {what} goes from {_plain(start)} in round {first:g} to {_plain(end)} in round {last:g}; "
        f"it is lowest, {_plain(low)}, in round {at:g}."
    )


def _table(facts: Facts, *, with_error: bool) -> Html:
    stride = math.ceil(len(facts.history) / MOST_ROUNDS)
    kept = [
        line
        for i, line in enumerate(facts.history)
        if i % stride == 0 or line["round"] in (facts.selected_round, len(facts.history))
    ]
    heads: Cells = ["round", "training loss", "held-out loss", *(["test error"] if with_error else [])]
    rows = []
    for line in kept:
        name = f"{line['round']:,}" + (" (delivered)" if line["round"] == facts.selected_round else "")
        cells = [number(line.get("loss")), number(line.get("held_out_loss"))]
        rows.append(Row([name], [*cells, *([percent(line.get("test_error"), 2)] if with_error else [])]))
    caption = "Figures by round" + ("" if stride == 1 else f", every {stride} rounds")
    return table("rounds-table", caption, heads, rows)


def _figure(chart: Html, caption: str) -> Html:
    return element("figure", chart, element("figcaption", caption))


def _plain(value: float) -> str:
    return number(value)


def _percents(share: float) -> str:
    return f"{100 * share:.3g}%"
