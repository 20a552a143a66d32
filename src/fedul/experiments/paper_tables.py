"""A reproduced table in the paper's layout, as Markdown, CSV and LaTeX, and its page: ours and the published numbers.

The page says what was run, on what, and for how long. It does not interpret the numbers; a page in docs/results is this
page with an interpretation below it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from fedul._utils.files import csv_text
from fedul._utils.hardware import describe_machine
from fedul.core import SIGNIFICANCE, paired_p_value
from fedul.experiments.cell import Cell, Published
from fedul.experiments.grid import BEST_NOTE
from fedul.experiments.paper import Experiment
from fedul.experiments.paper_cells import CellResult

NOT_RUN = "--"
REFERENCE = "fedul"
"""The method that the others are compared with."""
SMOKE_NOTE = "Run on the embedded digits, whatever data it names: a test of the machinery, not a reproduction"
METRICS = {
    "test_error_clients": "Test error in %, averaged over the clients",
    "test_errors": "Test error in %, client by client",
}


@dataclass(frozen=True)
class Entry:
    """One place of a table as text; `best` marks the best methods without labels."""

    ours: str = NOT_RUN
    published: str = ""
    best: bool = False


@dataclass(frozen=True)
class TableLayout:
    """A table as text: names of the row axes, column heads, and rows of heads and entries."""

    row_axes: Sequence[str]
    columns: Sequence[str]
    rows: Sequence[tuple[tuple[str, ...], Sequence[Entry]]]


def lay_out_table(experiment: Experiment, results: Sequence[CellResult]) -> TableLayout:
    """Return the whole table; cells that have not run have an entry that says so.

    Where a cell has one value per client, these are side by side.
    """
    down, across = experiment.rows, experiment.columns
    done = {(_values(result.cell, down), _values(result.cell, across)): result for result in results}
    cells = {(_values(cell, down), _values(cell, across)): cell for cell in experiment.cells}
    columns = list(dict.fromkeys(column for _, column in cells))
    clients = max([1, *(len(cell.published) for cell in experiment.cells), *(len(result.means) for result in results)])
    rows = []
    for row in dict.fromkeys(row for row, _ in cells):
        places = [(cells.get((row, column)), done.get((row, column))) for column in columns]
        entries = [_entry(cell, result, client) for cell, result in places for client in range(clients)]
        rows.append((tuple(experiment.label(value) for value in row), entries))
    named = [i for i, axis in enumerate(across) if clients == 1 or len(experiment.axes[axis]) > 1]
    heads = [" ".join(experiment.label(column[i]) for i in named) for column in columns]
    if clients > 1:
        heads = [f"{head} client {client + 1}".strip() for head in heads for client in range(clients)]
    return TableLayout(list(down), heads, rows)


def format_result(result: CellResult) -> str:
    """Return '1.23 (0.04)', as the paper prints it; one per client where there are several."""
    return " ".join(map(_format_pair, result.means, _spread(result)))


def format_published(published: Published) -> str:
    """Return the published numbers in the same form."""
    return " ".join(_format_pair(mean, deviation) for mean, deviation in published)


def to_markdown(table: TableLayout) -> str:
    """Return a Markdown table: ours, the best in bold; published numbers in the line below, in italics."""
    return _markdown_table(table.row_axes, table.columns, _lines(table, "**{}**", "*{}*", str)) + "\n"


def to_latex(table: TableLayout) -> str:
    """Return a LaTeX tabular: ours, the best in bold; published numbers in a smaller line below."""
    lines = [f"\\begin{{tabular}}{{{'l' * len(table.row_axes)}{'c' * len(table.columns)}}}", "\\hline"]
    lines.append(" & ".join(map(_escape_latex, [*table.row_axes, *table.columns])) + r" \\ \hline")
    body = _lines(table, "\\textbf{{{}}}", "{{\\footnotesize {}}}", _escape_latex)
    lines += [" & ".join(cells) + r" \\" for cells in body]
    return "\n".join([*lines, "\\hline", "\\end{tabular}"]) + "\n"


def to_csv(experiment: Experiment, results: Sequence[CellResult]) -> str:
    """Return CSV text with one line per cell, seed and, where there is one value per client, client."""
    head = ["ran_on", "seed", "client", "metric", "figure", "labels_used", "published_mean", "published_std"]
    rows = [[*experiment.axes, *(name if name not in experiment.axes else f"{name}_" for name in head)]]
    for result in results:
        cell = result.cell
        for seed, values in enumerate(result.values):
            for i, value in enumerate(values):
                client = i + 1 if len(values) > 1 else ""
                pair = cell.published[i] if i < len(cell.published) else (math.nan, math.nan)
                published = ["" if math.isnan(v) else f"{v:.15g}" for v in pair]
                run = [cell.data.data, seed, client, experiment.metric_of(cell), f"{value:.10g}", result.labels_used]
                rows.append([*cell.place, *map(str, run), *published])
    return csv_text(rows)


def _values(cell: Cell, axes: Sequence[str]) -> tuple[str, ...]:
    return tuple(cell.values[axis] for axis in axes)


def _entry(cell: Cell | None, result: CellResult | None, client: int) -> Entry:
    published = format_published(cell.published[client : client + 1]) if cell is not None else ""
    if result is None or client >= len(result.means):
        return Entry(published=published)
    return Entry(_format_pair(result.means[client], _spread(result)[client]), published, result.best)


def _spread(result: CellResult) -> list[float]:
    """Return the standard deviations; NaN for one seed."""
    return result.deviations if len(result.values) > 1 else [math.nan] * len(result.means)


def _format_pair(mean: float, deviation: float) -> str:
    if mean >= 1e4 or (mean > 100 and mean.is_integer()):  # a count
        return f"{mean:,.0f}"
    return f"{mean:.2f}" if math.isnan(deviation) else f"{mean:.2f} ({deviation:.2f})"


def _lines(table: TableLayout, best: str, published: str, escape: Callable[[str], str]) -> Iterator[list[str]]:
    """Yield the cells of every line, in the markup of a format."""
    for heads, entries in table.rows:
        yield [*map(escape, heads), *(best.format(e.ours) if e.best else e.ours for e in entries)]
        if any(e.published for e in entries):
            numbers = [published.format(e.published) if e.published else "" for e in entries]
            yield [published.format("published"), *[""] * (len(heads) - 1), *numbers]


def _escape_latex(text: str) -> str:
    return text.replace("\\", r"\textbackslash{}").replace("_", r"\_").replace("%", r"\%").replace("&", r"\&")


def render_page(experiment: Experiment, results: Sequence[CellResult], command: str) -> str:
    """Return the page, with the cells that have run.

    Parameters
    ----------
    experiment : Experiment
        The table or figure.
    results : sequence of CellResult
        Its finished cells.
    command : str
        The command that repeats it.
    """
    missing = len(experiment.cells) - len(results)
    runs = sum(len(result.values) for result in results)
    spent = timedelta(seconds=round(sum(result.seconds * len(result.values) for result in results)))
    seeds = "1 seed" if experiment.seeds == 1 else f"{experiment.seeds} seeds (0 to {experiment.seeds - 1})"
    marks = f" Bold: {BEST_NOTE}." if "method" in experiment.axes and experiment.seeds > 1 else ""
    parts = [
        f"# {experiment.source}: {experiment.title}",
        f"**What is implemented.** {experiment.note}",
        *([f"**Not a reproduction.** {SMOKE_NOTE}."] if experiment.scale == "smoke" else []),
        f"**Hardware.** {describe_machine()}.",
        f"**Command.** `{command}`; {experiment.scale} scale, {seeds}.",
        f"**Time.** {runs:,} runs; {spent} of training in all."
        + (f" Not run: {missing} of {len(experiment.cells)} cells." if missing else ""),
        "## Results and published numbers",
        f"{METRICS.get(experiment.metric, 'Values as the table names them')}, mean (standard deviation) over seeds; "
        f"published values in italics.{marks}",
        to_markdown(lay_out_table(experiment, results)).rstrip(),
    ]
    if experiment.x is not None:
        parts.append(f"![{experiment.title}](figure.svg)")
    if comparison := _compare_with_reference(experiment, results):
        reference = experiment.label(REFERENCE)
        parts += [
            f"## {reference} compared with the other methods",
            f"Error minus the error of {reference}, in points, and the p-value of a paired t-test over seeds; bold "
            f"where it is below {SIGNIFICANCE}. "
            f"With {experiment.seeds} seeds such a test has little power.",
            comparison,
        ]
    return "\n\n".join(parts) + "\n"


def _compare_with_reference(experiment: Experiment, results: Sequence[CellResult]) -> str:
    """Return a table with one line per row of the experiment and one column per other method."""
    methods = [method for method in experiment.axes.get("method", ()) if method != REFERENCE]
    if REFERENCE not in experiment.axes.get("method", ()) or not methods or experiment.seeds == 1:
        return ""
    by_row: dict[tuple[str, ...], dict[str, CellResult]] = {}
    for result in results:
        by_row.setdefault(result.row, {})[result.cell.values["method"]] = result
    axes = [axis for axis in experiment.axes if axis != "method"]
    varied = [i for i, axis in enumerate(axes) if len(experiment.axes[axis]) > 1]
    lines = [
        [
            *(experiment.label(row[i]) for i in varied),
            *(_difference(by_method.get(method), by_method[REFERENCE]) for method in methods),
        ]
        for row, by_method in by_row.items()
        if REFERENCE in by_method
    ]
    return _markdown_table([axes[i] for i in varied], list(map(experiment.label, methods)), lines)


def _markdown_table(names: Sequence[str], numbers: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table with columns of names on the left and of numbers on the right."""
    rule = "|" + "---|" * len(names) + "---:|" * len(numbers)
    head, *body = ["| " + " | ".join(cells) + " |" for cells in ([*names, *numbers], *lines)]
    return "\n".join([head, rule, *body])


def _difference(result: CellResult | None, reference: CellResult) -> str:
    if result is None:
        return NOT_RUN
    p_value = paired_p_value(result.by_seed, reference.by_seed)
    text = f"{result.mean - reference.mean:+.2f} (p {p_value:.3f})"
    return f"**{text}**" if p_value is not None and p_value < SIGNIFICANCE else text
