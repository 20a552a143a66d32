"""Calibration by set: how common the classifier finds each class in a set, beside what was stated."""

from __future__ import annotations

from fedul.report.facts import Facts
from fedul.report.markup import Cells, Html, Row, command, details, element, paragraph, section, table, words
from fedul.report.svg import scatter
from fedul.report.wording import MINUS, counted, more, percent

FAR = 2.0
"""Standard errors; by chance, one in twenty differs by more."""
MOST_LINES = 40
MOST_POINTS = 1500


def calibration_section(facts: Facts) -> Html:
    """Whether the predicted shares of the classes meet the stated ones."""
    title = "Calibration by set"
    lines = facts.evaluation.calibration if facts.evaluation else ()
    if not lines and facts.across_sites:
        return section(
            "calibration", title, paragraph("Not known: class mixes of sets, and figures by set, stay there.")
        )
    if not lines:
        return section(
            "calibration",
            title,
            paragraph("The evaluation has no figures by set.")
            if facts.evaluation
            else paragraph("Not computed yet: ", command(facts.evaluate_command), "."),
        )
    far = sum(abs(line.apart) > FAR for line in lines)
    summary = (
        f"{far:,} of {counted(len(lines), 'share')} differ by more than two standard errors; by chance alone about "
        f"{0.05 * len(lines):.0f} would."
    )
    stride = -(-len(lines) // MOST_POINTS)
    points = [(line.stated, line.predicted, line.standard_error, abs(line.apart) > FAR) for line in lines[::stride]]
    chart = scatter("calibration-chart", "Predicted beside stated class shares of the sets", summary, points)
    caption = "A point for each class in each set, with two standard errors; on the line the two agree"
    ordered = sorted(lines, key=lambda line: -abs(line.apart))[:MOST_LINES]
    rows = [
        Row(
            [words(line.client), words(line.set), words(line.of_class)],
            [percent(line.stated, 1), percent(line.predicted, 1), f"{line.apart:+.1f}".replace("-", MINUS)],
        )
        for line in ordered
    ]
    heads: Cells = [*(words(name) for name in ("client", "set", "class")), "stated", "predicted", "std. errors off"]
    left_out = more(len(rows), len(lines), "share")
    return section(
        "calibration",
        title,
        paragraph(
            "If the probabilities are honest, their mean over a set is the class mix of that set. " + summary,
        ),
        element("figure", chart, element("figcaption", caption), class_="square"),
        details(
            "The figures, those furthest off first",
            table("calibration-table", "Stated and predicted share of a class in a set", heads, rows),
            paragraph(left_out, kind="note") if left_out else None,
        ),
    )
