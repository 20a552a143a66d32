"""Class priors as a heat map: a row a set, with the numbers in the cells."""

from __future__ import annotations

from fedul.report.facts import Facts
from fedul.report.markup import Cell, Cells, Html, Row, paragraph, section, table, words
from fedul.report.wording import more

MOST_SETS = 40


def priors_section(facts: Facts) -> Html:
    """How common each class is in each set, where the data is at hand."""
    title = "Class priors"
    if facts.clients is None:
        return section(
            "priors",
            title,
            paragraph(
                "How common each class is in each set is known to the clients and stays with them: the data was not at "
                "hand when this page was made, so there is no map of it."
            ),
        )
    rows: list[Row] = []
    for client in facts.clients:
        shown = list(zip(client.sets, client.priors, strict=True))[: MOST_SETS - len(rows)]
        for i, (name, shares) in enumerate(shown):
            of_client = [Cell(client.name, words=True, span=len(shown))] if i == 0 else []
            cells = [Cell(f"{100 * share:.1f}", share=share) for share in shares]
            rows.append(Row([*of_client, words(name)], cells))
    sets = sum(len(client.sets) for client in facts.clients)
    heads: Cells = [words("client"), words("set"), *facts.classes]
    caption = "Share of each class in each set, in %; the stronger the colour, the more"
    note = more(len(rows), sets, "set")
    return section(
        "priors",
        title,
        paragraph(
            "All that was known beside the rows: how common each class is in each set. The more the sets of a client "
            "differ, the more can be learned from them."
        ),
        table("priors-table", caption, heads, rows, kind="map"),
        paragraph(note, kind="note") if note else None,
        paragraph("Clients keep these numbers to themselves: show this page only to those who may.", kind="note"),
    )
