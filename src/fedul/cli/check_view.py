"""What `fedul check` shows: the verdict in a sentence, advice, and then the figures."""

from __future__ import annotations

from rich import box
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from fedul.cli import show
from fedul.evaluation.findings import ClientOutlook, Outlook, share_range

CLIENTS = 20
"""So many clients are shown, the weakest first."""

COLOURS = {"enough": "green", "costly": "yellow", "not enough": "red"}
FROM_THEORY = (
    "Worth, in labels, is forecast from theory: sizes and priors of the sets are known to it; your data, the network "
    "and the training are not. Where classes are clear-cut, expect the lower end: labels say most there."
)


def show_outlook(outlook: Outlook) -> None:
    """Prints it: words first, numbers second; fits into 80 columns."""
    verdict, _, reason = outlook.summary.partition(":")
    show.out.print(f"[bold {COLOURS[outlook.verdict]}]{escape(verdict)}[/]:{escape(reason)}")
    for sentence in outlook.advice:
        bullet = Table.grid(padding=(0, 1))
        bullet.add_row(" •", escape(sentence))
        show.out.print(bullet)
    together = outlook.together
    show.out.print(
        f"\n{together.clients:,} clients, {together.sets:,} sets, {together.rows:,} rows; class mixes differ in "
        f"{together.rank} of the {together.classes - 1} ways needed"
    )
    show.out.print(_client_table(outlook))
    if (more := len(outlook.clients) - CLIENTS) > 0:
        show.out.print(f"  and {more:,} more, worth more")
    show.out.print(_pair_table(outlook))
    show.out.print(Padding(f"[dim]{FROM_THEORY}[/]", (0, 1)))


def weakest_first(outlook: Outlook) -> list[ClientOutlook]:
    return sorted(outlook.clients, key=lambda client: (client.efficiency, client.client))


def _client_table(outlook: Outlook) -> Table:
    table = Table(title="clients, the weakest first", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("client", max_width=24, overflow="ellipsis", no_wrap=True)
    for title in ("rows", "sets", "rank", "condition", "information", "worth"):
        table.add_column(title, justify="right", no_wrap=True)
    for client in weakest_first(outlook)[:CLIENTS]:
        condition = "-" if client.condition is None else f"{client.condition:,.1f}"
        counts = [f"{number:,}" for number in (client.rows, client.sets, client.rank)]
        shares = [share_range(share, share) for share in (client.information, client.efficiency)]
        table.add_row(escape(client.client), *counts, condition, *shares)
    return table


def _pair_table(outlook: Outlook) -> Table:
    table = Table(title="classes told apart worst", title_justify="left", box=box.SIMPLE_HEAD)
    for title in ("class", "from class"):
        table.add_column(title, max_width=24, overflow="ellipsis", no_wrap=True)
    for title in ("a row is worth", "contrast of sets"):
        table.add_column(title, justify="right", no_wrap=True)
    for pair in outlook.pairs:
        worth = share_range(pair.low, pair.high)
        table.add_row(escape(pair.first), escape(pair.second), worth, f"{pair.contrast:.2f}")
    return table
