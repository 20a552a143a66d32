"""A reproduced table in the paper's layout: as Markdown, CSV and LaTeX, ours beside what was published."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedul.experiments.declaration import Cell, Declaration, Published
from fedul.experiments.runner import Found

NOT_RUN = "--"
SMOKE = "Run on the embedded digits, whatever data it names: a test of the machinery, not a reproduction"


@dataclass(frozen=True)
class Entry:
    """One place of the table: ours and theirs, as text."""

    ours: str = NOT_RUN
    published: str = ""
    marked: bool = False


@dataclass(frozen=True)
class Grid:
    """A table as text: heads of the rows, heads of the columns, and what stands between them."""

    corner: Sequence[str]
    columns: Sequence[str]
    rows: Sequence[tuple[tuple[str, ...], Sequence[Entry]]]


def grid(declaration: Declaration, found: Sequence[Found]) -> Grid:
    """The table as far as it has been run; places that have not are there, and say so.

    Where a cell has a figure for each client, these stand side by side.
    """
    down, across = declaration.rows, declaration.columns
    done = {(_values(one.cell, down), _values(one.cell, across)): one for one in found}
    cells = {(_values(cell, down), _values(cell, across)): cell for cell in declaration.cells}
    columns = list(dict.fromkeys(column for _, column in cells))
    parts = max([1, *(len(cell.published) for cell in declaration.cells), *(len(one.means) for one in found)])
    body = []
    for row in dict.fromkeys(row for row, _ in cells):
        places = [(cells.get((row, column)), done.get((row, column))) for column in columns]
        entries = [_entry(cell, one, part) for cell, one in places for part in range(parts)]
        body.append((tuple(declaration.label(value) for value in row), entries))
    told = [i for i, axis in enumerate(across) if parts == 1 or len(declaration.axes[axis]) > 1]
    heads = [" ".join(declaration.label(column[i]) for i in told) for column in columns]
    if parts > 1:
        heads = [f"{head} client {part + 1}".strip() for head in heads for part in range(parts)]
    return Grid(list(down), heads, body)


def _entry(cell: Cell | None, found: Found | None, part: int) -> Entry:
    theirs = _pair(*cell.published[part]) if cell is not None and part < len(cell.published) else ""
    if found is None or part >= len(found.means):
        return Entry(published=theirs)
    return Entry(_pair(found.means[part], _spread(found)[part]), theirs, found.marked)


def as_printed(found: Found) -> str:
    """'1.23 (0.04)', as the paper prints it; several where there is one for each client."""
    return " ".join(map(_pair, found.means, _spread(found)))


def _spread(found: Found) -> list[float]:
    """Standard deviations; of one seed there is none."""
    return found.deviations if len(found.figures) > 1 else [math.nan] * len(found.means)


def printed(published: Published) -> str:
    return " ".join(_pair(mean, deviation) for mean, deviation in published)


def _pair(mean: float, deviation: float) -> str:
    if mean >= 1e4 or (mean > 100 and mean.is_integer()):  # a count
        return f"{mean:,.0f}"
    return f"{mean:.2f}" if math.isnan(deviation) else f"{mean:.2f} ({deviation:.2f})"


def markdown(table: Grid) -> str:
    """Ours, the best in bold; published values in the line below, in italics."""
    lines = ["| " + " | ".join([*table.corner, *table.columns]) + " |"]
    lines.append("|" + "---|" * len(table.corner) + "---:|" * len(table.columns))
    for heads, entries in table.rows:
        ours = [f"**{e.ours}**" if e.marked else e.ours for e in entries]
        lines.append("| " + " | ".join([*heads, *ours]) + " |")
        if any(e.published for e in entries):
            theirs = [f"*{e.published}*" if e.published else "" for e in entries]
            lines.append("| " + " | ".join(["*published*", *[""] * (len(heads) - 1), *theirs]) + " |")
    return "\n".join(lines) + "\n"


def latex(table: Grid) -> str:
    """A tabular with ours, the best in bold, and published values in a smaller line below."""
    lines = [f"\\begin{{tabular}}{{{'l' * len(table.corner)}{'c' * len(table.columns)}}}", "\\hline"]
    lines.append(" & ".join(map(_escaped, [*table.corner, *table.columns])) + r" \\ \hline")
    for heads, entries in table.rows:
        ours = [f"\\textbf{{{e.ours}}}" if e.marked else e.ours for e in entries]
        lines.append(" & ".join([*map(_escaped, heads), *ours]) + r" \\")
        if any(e.published for e in entries):
            theirs = [f"{{\\footnotesize {e.published}}}" if e.published else "" for e in entries]
            lines.append(" & ".join(["{\\footnotesize published}", *[""] * (len(heads) - 1), *theirs]) + r" \\")
    return "\n".join([*lines, "\\hline", "\\end{tabular}"]) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\textbackslash{}").replace("_", r"\_").replace("%", r"\%").replace("&", r"\&")


def comma_separated(declaration: Declaration, found: Sequence[Found]) -> str:
    """A line for each cell, seed and, where there is a figure for each, client."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    head = ["ran_on", "seed", "client", "metric", "figure", "labels_used", "published_mean", "published_std"]
    writer.writerow([*declaration.axes, *(name if name not in declaration.axes else f"{name}_" for name in head)])
    for one in found:
        metric = one.cell.values.get(declaration.metric, declaration.metric)
        for seed, figures in enumerate(one.figures):
            for i, figure in enumerate(figures):
                client = i + 1 if len(figures) > 1 else ""
                theirs = one.cell.published[i] if i < len(one.cell.published) else (math.nan, math.nan)
                published = ["" if math.isnan(v) else f"{v:.15g}" for v in theirs]
                facts = [one.cell.data.data, seed, client, metric, f"{figure:.10g}", one.labels_used]
                writer.writerow([*one.cell.values.values(), *facts, *published])
    return text.getvalue()


def heading(declaration: Declaration) -> str:
    """What a table is of, in a sentence: also what it is not."""
    seeds = "1 seed" if declaration.seeds == 1 else f"{declaration.seeds} seeds"
    text = f"{declaration.source}: {declaration.title} ({declaration.scale} scale, {seeds})"
    return f"{text}. {SMOKE}" if declaration.scale == "smoke" else text


def _values(cell: Cell, axes: Sequence[str]) -> tuple[str, ...]:
    return tuple(cell.values[axis] for axis in axes)
