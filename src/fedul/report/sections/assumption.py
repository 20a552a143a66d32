"""The test of what everything rests on: that all sets are mixtures of the same classes."""

from __future__ import annotations

from fedul.report.facts import TOO_LITTLE, Facts
from fedul.report.markup import Cells, Html, Row, command, paragraph, section, table, words
from fedul.report.sections.answer import LEVEL
from fedul.report.wording import number, p_value

MOST_MISFITS = 40


def assumption_section(facts: Facts) -> Html:
    """Whether the sets contradict the assumption, and which."""
    evaluation = facts.evaluation
    said = (
        "What is learned and estimated here rests on one assumption: a case of a class looks alike in every set, and "
        "sets differ only in how common the classes are."
    )
    if evaluation is None and facts.across_sites:
        return section("assumption", "Assumption test", paragraph(said, f" It has not been tested: {TOO_LITTLE}."))
    if evaluation is None:
        return section(
            "assumption",
            "Assumption test",
            paragraph(said, " It has not been tested yet: ", command(facts.evaluate_command), "."),
        )
    if evaluation.p_value is None:
        verdict = f"It could not be tested: {evaluation.reason or 'no reason is given'}"
        verdict = verdict if verdict.endswith(".") else f"{verdict}."
    elif evaluation.p_value < LEVEL:
        verdict = f"The sets contradict it ({p_value(evaluation.p_value)}): take the estimates with caution."
    else:
        verdict = f"The sets do not contradict it ({p_value(evaluation.p_value)})."
    rows = [
        Row(
            [words(one.client), words(one.set)],
            [number(one.p_value, 2), words(one.why)],
        )
        for one in evaluation.misfits[:MOST_MISFITS]
    ]
    heads: Cells = [words("client"), words("set"), "p", words("why")]
    return section(
        "assumption",
        "Assumption test",
        paragraph(said, " ", verdict),
        table("misfits-table", "Sets that fit badly", heads, rows) if rows else None,
        paragraph("No single set stands out.") if not rows and evaluation.p_value is not None else None,
    )
