"""The page of a reproduced table: what was run, on what, how long, ours beside the published numbers.

What the numbers mean is left to whoever reads them: a page in docs/results is this one with a reading below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from fedul.comparison import LEVEL, paired_p_value
from fedul.experiments.declaration import Declaration
from fedul.experiments.runner import Found, of_each_seed, row_of
from fedul.hardware import described
from fedul.report.paper_tables import SMOKE, grid, markdown

REFERENCE = "fedul"
"""The method that the others are set against."""


def page(declaration: Declaration, found: Sequence[Found], command: str) -> str:
    """The page in Markdown, as far as the table has been run."""
    missing = len(declaration.cells) - len(found)
    runs = sum(len(one.figures) for one in found)
    spent = timedelta(seconds=round(sum(one.seconds * len(one.figures) for one in found)))
    seeds = "1 seed" if declaration.seeds == 1 else f"{declaration.seeds} seeds (0 to {declaration.seeds - 1})"
    parts = [
        f"# {declaration.source}: {declaration.title}",
        f"**What is implemented.** {declaration.note}",
        *([f"**Not a reproduction.** {SMOKE}."] if declaration.scale == "smoke" else []),
        f"**Hardware.** {described()}.",
        f"**Command.** `{command}`; {declaration.scale} scale, {seeds}.",
        f"**Time.** {runs:,} runs; {spent} of training in all."
        + (f" Not run: {missing} of {len(declaration.cells)} cells." if missing else ""),
        "## Ours, and the published numbers",
        f"{_what(declaration)}, mean (standard deviation) over seeds; published ones in italics.{_bold(declaration)}",
        markdown(grid(declaration, found)).rstrip(),
    ]
    if declaration.x is not None:
        parts.append(f"![{declaration.title}](figure.svg)")
    if against := _against(declaration, found):
        parts += [
            f"## {declaration.label(REFERENCE)} against the others",
            f"Points by which a method errs more than {declaration.label(REFERENCE)} (less, where negative), and the p "
            f"of a paired t-test over seeds; bold where it is below {LEVEL}. "
            f"Of {declaration.seeds} seeds such a test says little.",
            against,
        ]
    return "\n\n".join(parts) + "\n"


def _what(declaration: Declaration) -> str:
    return {
        "test_error_clients": "Test error in %, averaged over the clients",
        "test_errors": "Test error in %, client by client",
    }.get(declaration.metric, "Figures as the table names them")


def _bold(declaration: Declaration) -> str:
    if "method" not in declaration.axes or declaration.seeds == 1:
        return ""
    return " Bold: the best without labels, and all that a paired t-test at 5 % does not call worse."


def _against(declaration: Declaration, found: Sequence[Found]) -> str:
    """A line for each row of the table, a column for each other method."""
    methods = [method for method in declaration.axes.get("method", ()) if method != REFERENCE]
    if REFERENCE not in declaration.axes.get("method", ()) or not methods or declaration.seeds == 1:
        return ""
    by_row: dict[tuple[str, ...], dict[str, Found]] = {}
    for one in found:
        by_row.setdefault(row_of(one), {})[one.cell.values["method"]] = one
    varied = [i for i, axis in enumerate(_others(declaration)) if len(declaration.axes[axis]) > 1]
    heads = [_others(declaration)[i] for i in varied]
    lines = ["| " + " | ".join([*heads, *map(declaration.label, methods)]) + " |"]
    lines.append("|" + "---|" * len(heads) + "---:|" * len(methods))
    for row, members in by_row.items():
        if REFERENCE in members:
            places = [_difference(members.get(method), members[REFERENCE]) for method in methods]
            lines.append("| " + " | ".join([*(declaration.label(row[i]) for i in varied), *places]) + " |")
    return "\n".join(lines)


def _others(declaration: Declaration) -> list[str]:
    return [axis for axis in declaration.axes if axis != "method"]


def _difference(one: Found | None, reference: Found) -> str:
    if one is None:
        return "--"
    theirs, ours = of_each_seed(one), of_each_seed(reference)
    p_value = paired_p_value(theirs, ours)
    text = f"{sum(theirs) / len(theirs) - sum(ours) / len(ours):+.2f} (p {p_value:.3f})"
    return f"**{text}**" if p_value is not None and p_value < LEVEL else text
