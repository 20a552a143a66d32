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
    return Entry(_pair(found.means[part], found.deviations[part]), theirs, found.marked)


def as_printed(found: Found) -> str:
    """'1.23 (0.04)', as the paper prints it; several where there is one for each client."""
    return " ".join(map(_pair, found.means, found.deviations))


def printed(published: Published) -> str:
    return " ".join(_pair(mean, deviation) for mean, deviation in published)


def _pair(mean: float, deviation: float) -> str:
    if mean >= 1e4:  # a count
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
    width = len(table.corner) + len(table.columns)
    lines = [f"\\begin{{tabular}}{{{'l' * len(table.corner)}{'c' * len(table.columns)}}}", "\\hline"]
    lines.append(" & ".join(map(_escaped, [*table.corner, *table.columns])) + r" \\ \hline")
    for heads, entries in table.rows:
        ours = [f"\\textbf{{{e.ours}}}" if e.marked else e.ours for e in entries]
        lines.append(" & ".join([*map(_escaped, heads), *ours]) + r" \\")
        if any(e.published for e in entries):
            theirs = [f"{{\\footnotesize {e.published}}}" if e.published else "" for e in entries]
            lines.append(" & ".join(["{\\footnotesize published}", *[""] * (len(heads) - 1), *theirs]) + r" \\")
    assert all(line.count(" & ") <= width - 1 for line in lines)
    return "\n".join([*lines, "\\hline", "\\end{tabular}"]) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\textbackslash{}").replace("_", r"\_").replace("%", r"\%").replace("&", r"\&")


def comma_separated(declaration: Declaration, found: Sequence[Found]) -> str:
    """A line for each cell and seed."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*declaration.axes, "seed", declaration.metric, "labels_used", "published_mean", "published_std"])
    for one in found:
        theirs = one.cell.published
        for seed, figures in enumerate(one.figures):
            for i, figure in enumerate(figures):
                published = [f"{v:g}" for v in theirs[i]] if i < len(theirs) else ["", ""]
                writer.writerow([*one.cell.values.values(), seed, f"{figure:.4f}", one.labels_used, *published])
    return text.getvalue()


def _values(cell: Cell, axes: Sequence[str]) -> tuple[str, ...]:
    return tuple(cell.values[axis] for axis in axes)
