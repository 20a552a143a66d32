"""Text of `CheckResult` for a terminal: verdict and advice first, then what was read, then numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich import box
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from fedul._utils.display import counted, make_table
from fedul.core import ColumnReading
from fedul.errors import list_names
from fedul.evaluation.check_result import CheckResult, format_share_range

MAX_CLIENTS = 20
"""Clients that are shown, the weakest first."""
MAX_COLUMNS = 30
"""Columns of a table that are shown."""
MAX_CLASSES = 12
MAX_WORDS = 4
NAME_WIDTH = 24

COLOURS = {"enough": "green", "weak": "yellow", "costly": "yellow", "not enough": "red"}
PRIORS_OF = {"population": "of a population", "rows": "of exactly these rows", "train": "of the training rows"}
FORECAST_NOTE = (
    "The worth in labels is a forecast from the sizes and priors of the sets; rows, network and training do not enter "
    "it. Where classes are easy to tell apart, expect the lower end."
)


def check_view(result: CheckResult) -> Group:
    """Return diagnostics as text and tables."""
    verdict, _, reason = result.summary.partition(":")
    totals, hidden = result.totals, len(result.clients) - MAX_CLIENTS
    parts: list[RenderableType] = [
        f"[bold {COLOURS[result.verdict]}]{escape(verdict)}[/]:{escape(reason)}",
        _bullets(result.advice),
        "",
        *_reading(result),
        f"{counted(totals.clients, 'client')}, {counted(totals.sets, 'set')}, {counted(totals.rows, 'training row')}; "
        f"class mixes of {'all sets' if result.compared == 'all sets' else 'the sets of a client'} differ in "
        f"{totals.rank} of the {totals.classes - 1} ways needed",
        _client_table(result),
        *([f"  and {hidden:,} more, worth more"] if hidden > 0 else []),
        _pair_table(result),
        Padding(f"[dim]{FORECAST_NOTE}[/]", (0, 1)),
    ]
    return Group(*parts)


def _bullets(sentences: Iterable[str]) -> Table:
    bullets = Table.grid(padding=(0, 1))
    for sentence in sentences:
        bullets.add_row(" •", escape(sentence))
    return bullets


def _reading(result: CheckResult) -> Iterator[RenderableType]:
    """Yield what was read."""
    if result.classes:
        shares = [f"{each.name} {each.share:.1%}" for each in result.classes]
        test = [f"{each.name} {each.test_share:.1%}" for each in result.classes]
        same = all(abs(each.share - each.test_share) < 5e-4 for each in result.classes)
        mix = "the same, that of all rows" if same else list_names(test, MAX_CLASSES)
        yield f"classes (share of all rows): {escape(list_names(shares, MAX_CLASSES))}"
        yield f"class mix that the classifier is for (--test-prior): {escape(mix)}"
    if result.priors is not None and result.priors.unit:
        rounding = result.priors.rounding
        rounded = f", rounded to {format_share_range(2 * rounding, 2 * rounding)}" if rounding else ""
        of = " or ".join(PRIORS_OF.get(name, name) for name in result.priors.of)
        yield f"class priors: {result.priors.unit}{rounded}, {of}"
    if result.columns:
        yield _column_table(result.columns)
        hidden = len(result.columns) - MAX_COLUMNS
        if hidden > 0:
            yield f"  and {counted(hidden, 'more column')}"
    if result.warnings:
        yield _bullets(result.warnings)
        yield ""


def _column_table(columns: tuple[ColumnReading, ...]) -> Table:
    table = Table(title="columns as they were read", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("column", max_width=NAME_WIDTH, overflow="fold")
    table.add_column("type", no_wrap=True)
    table.add_column("values", max_width=40, overflow="fold")
    table.add_column("missing", justify="right", no_wrap=True)
    for column in columns[:MAX_COLUMNS]:
        table.add_row(escape(column.name), column.kind, escape(_values_text(column)), f"{column.missing:,}")
    return table


def _values_text(column: ColumnReading) -> str:
    if column.low is not None and column.high is not None:
        return f"{column.low:g} to {column.high:g}"
    return list_names(column.words, MAX_WORDS) if column.words else "yes or no" if column.kind == "boolean" else ""


def _client_table(result: CheckResult) -> Table:
    title = "clients, the weakest first; worth if only the sets of a client are compared"
    table = make_table(
        ["client"],
        ["rows", "sets", "rank", "information", "worth"],
        title,
        name_width=NAME_WIDTH,
        wrap_names=True,
    )
    for client in sorted(result.clients, key=lambda client: (client.efficiency, client.client))[:MAX_CLIENTS]:
        counts = [f"{number:,}" for number in (client.rows, client.sets, client.rank)]
        shares = [format_share_range(share, share) for share in (client.information, client.efficiency)]
        table.add_row(escape(client.client), *counts, *shares)
    return table


def _pair_table(result: CheckResult) -> Table:
    table = make_table(
        ["class", "from class"],
        ["worth of a row", "contrast"],
        "classes told apart worst; contrast between sets",
        name_width=NAME_WIDTH,
        wrap_names=True,
    )
    for pair in result.pairs:
        worth = format_share_range(pair.low, pair.high)
        contrast = f"{pair.contrast:.2g}" if pair.contrast >= 5e-4 else "0"
        table.add_row(escape(pair.first), escape(pair.second), worth, contrast)
    return table
