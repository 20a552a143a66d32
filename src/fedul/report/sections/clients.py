"""The clients' contributions: rows, sets, and how much their class priors tell."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fedul.report.facts import Facts
from fedul.report.judged import Checked
from fedul.report.markup import Cells, Html, Row, command, element, paragraph, section, table, words
from fedul.report.svg import bar
from fedul.report.wording import more, number, percent

MOST_CLIENTS = 40
TITLE = "Clients' contributions"


def clients_section(facts: Facts) -> Html:
    """Who gave how much."""
    if facts.check is not None:
        return section("clients", TITLE, *_checked(facts.check.clients), *_advice(facts))
    if facts.across_sites:
        told = paragraph("The data is at the sites and stays there; what each of them estimates is in evaluation.json.")
        return section("clients", TITLE, told if facts.evaluation else paragraph("The data is at the sites."))
    how = paragraph("How much each client's class priors tell is found by ", command("fedul check"), ".")
    if facts.clients is None:
        return section("clients", TITLE, paragraph("The data was not at hand when this page was made."), how)
    total = sum(client.rows for client in facts.clients) or 1
    shown = sorted(facts.clients, key=lambda client: -client.rows) if _many(facts.clients) else facts.clients
    rows = [
        Row(
            [words(client.name)],
            [number(client.rows), number(len(client.sets)), percent(client.rows / total), bar(client.rows / total)],
        )
        for client in shown[:MOST_CLIENTS]
    ]
    heads: Cells = [words("client"), "rows", "sets", "share of all rows", _drawn()]
    return section("clients", TITLE, table("clients-table", "Rows and sets", heads, rows), *_rest(facts.clients), how)


def _checked(clients: Sequence[Checked]) -> list[Html]:
    total = sum(client.information or 0.0 for client in clients)
    order = sorted(clients, key=lambda client: -(client.information or 0.0)) if _many(clients) else clients
    rows = []
    for client in order[:MOST_CLIENTS]:
        condition = math.inf if client.condition is None else client.condition
        share = None if client.information is None or not total else client.information / total
        figures = [number(client.rows), number(client.sets), number(client.rank), number(condition, 3)]
        rows.append(Row([words(client.name)], [*figures, percent(share), None if share is None else bar(share)]))
    heads: Cells = [words("client"), "rows", "sets", "rank", "condition", "share of the information", _drawn()]
    said = paragraph(
        "A client tells more the more rows it has and the more its sets differ. Rank: how many class mixes its sets "
        "tell apart. Condition: how much errors in the class priors are magnified; near 1 is best."
    )
    return [said, table("clients-table", "What each client contributes", heads, rows), *_rest(clients)]


def _advice(facts: Facts) -> list[Html]:
    assert facts.check is not None
    if not facts.check.advice:
        return []
    return [
        element("h3", "Advice"),
        element("ul", [element("li", sentence) for sentence in facts.check.advice]),
    ]


def _many(clients: Sequence[object]) -> bool:
    return len(clients) > MOST_CLIENTS


def _rest(clients: Sequence[object]) -> list[Html]:
    note = more(min(MOST_CLIENTS, len(clients)), len(clients), "client")
    return [paragraph(note, kind="note")] if note else []


def _drawn() -> Html:
    return element("span", "drawn as a bar", class_="hidden")
