"""Class priors from tables with the columns client, set and one per class: proportions, percentages or counts.

The uncertainty of priors comes from columns CLASS_low and CLASS_high (95 % intervals), or from the counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedul.core import SUM_TOLERANCE, Z_95, Matrix, validate_priors
from fedul.data.files.priors_line import TOTALS, PriorsLine, find_columns, parse_line, refuse_extra_columns
from fedul.data.files.tables import Table, open_tables
from fedul.errors import InputError

MOSTLY = 0.5
"""Share of lines that sum to 100 above which whole numbers are percentages, and other lines are wrong."""


@dataclass(frozen=True, eq=False)
class StatedPriors:
    """Class priors of one set as stated in a table.

    Parameters
    ----------
    shares : ndarray of shape (K,)
        The class priors.
    cases : float
        Number of counted cases that gives the same uncertainty; infinity if no uncertainty is stated.
    rounding : float
        Largest rounding error of a share.
    counted : bool
        Whether the table has counts of cases.
    """

    shares: Matrix
    cases: float = math.inf
    rounding: float = 0.0
    counted: bool = False


@dataclass(frozen=True, eq=False)
class PriorsTable:
    """Class priors by client and set.

    Parameters
    ----------
    source : str
        How messages name the table.
    classes : tuple of str
        Names of the classes.
    clients : mapping of str to mapping of str to StatedPriors
        Priors by client and set, in the order of the table; the client "" stands for all clients.
    unit : str
        What the numbers are: proportions, percentages or counts.
    notes : tuple of str
        How the table was read, where this is not obvious, one sentence each.
    """

    source: str
    classes: tuple[str, ...]
    clients: Mapping[str, Mapping[str, StatedPriors]]
    unit: str = "proportions"
    notes: tuple[str, ...] = ()

    def priors_of(self, client: str) -> Mapping[str, StatedPriors]:
        """Return the priors of a client by set; empty if the table has none."""
        return self.clients.get(client) or self.clients.get("") or {}


def read_priors(
    source: str | Table,
    *,
    unit: str = "auto",
    client_column: str | None = None,
    set_column: str | None = None,
    classes: Sequence[str] = (),
) -> PriorsTable:
    """Read class priors from a table, or from several that agree where they name the same set.

    Parameters
    ----------
    source : str or Table
        A path, folder or pattern, or a table in memory.
    unit : str, default="auto"
        What the numbers are: proportions, percentages, counts, or auto.
    client_column, set_column : str, optional
        Names of the key columns, if they are not "client" and "set".
    classes : sequence of str, optional
        Names of the classes; empty if every other column is one. One of two classes may have no column: it has the
        rest of every set.

    Returns
    -------
    PriorsTable
    """
    try:
        return _read(source, unit, (client_column or "client", set_column or "set"), classes)
    except InputError as problem:
        if isinstance(source, Table) or not Path(source).expanduser().is_dir() or str(problem).startswith(f"{source}:"):
            raise
        raise InputError(f"{source}: is a folder, of which every table is read: {problem}") from None


def _read(source: str | Table, unit: str, keys: tuple[str, str], named: Sequence[str]) -> PriorsTable:
    name = source.source if isinstance(source, Table) else source
    lines: list[PriorsLine] = []
    classes: tuple[str, ...] = ()
    rest = ""
    for table in open_tables(source):
        columns = find_columns(table, keys, named)
        if classes and sorted(columns.order) != sorted(classes):
            raise InputError(
                f"{table.source}: has the classes {', '.join(columns.order)}, but other files have "
                f"{', '.join(classes)}."
            )
        classes, rest = classes or columns.order, columns.rest
        lines += [parse_line(table.source, where, cells, columns) for where, cells in table.text_rows()]
    if not lines:
        raise InputError(f"{name}: names no set; give one line per set, with client, set and a column for each class.")
    notes: tuple[str, ...] = ()
    if rest:
        unit, lines, notes = _with_rest(name, lines, unit, rest)
    elif not named:
        refuse_extra_columns(name, lines, unit)
    unit = _infer_unit(lines) if unit == "auto" else unit
    clients: dict[str, dict[str, StatedPriors]] = {}
    seen: dict[tuple[str, str], PriorsLine] = {}
    for line in lines:
        stated, before = _as_stated_priors(line, unit, classes), seen.setdefault((line.client, line.set), line)
        known = clients.setdefault(line.client, {}).setdefault(line.set, stated)
        if before is not line and (before.file == line.file or not np.allclose(known.shares, stated.shares)):
            again = " twice" if before.file == line.file else f" and in {before.where} with other values"
            raise InputError(f"{line.where}: {line.title} occurs{again}; keep one.")
    return PriorsTable(name, classes, clients, unit, notes)


def _with_rest(
    source: str, lines: Sequence[PriorsLine], unit: str, rest: str
) -> tuple[str, list[PriorsLine], tuple[str, ...]]:
    """Return the unit of a table with one class column, its lines with the other class, and how they were read."""
    (name,) = lines[0].shares
    if unit == "counts":
        raise InputError(
            f"{source}: counts of '{name}' alone say nothing about '{rest}'; give a column for each class."
        )
    if unit == "auto":
        are_shares = all(line.shares[name] <= 1 and not line.percent for line in lines)
        unit = "proportions" if are_shares else "percentages"
    note = f"{source}: has one class column, '{name}', read as {unit}; class '{rest}' has the rest of each set."
    hint = f" Name it with --classes '{name},NAME'." if rest == f"not {name}" else ""
    return unit, [line.with_rest(rest, TOTALS[unit]) for line in lines], (note + hint,)


def _infer_unit(lines: Sequence[PriorsLine]) -> str:
    """Return what the numbers are, if there is no doubt."""
    if all(line.sums_to(1.0) for line in lines):
        return "proportions"
    if all(line.percent or line.sums_to(100.0) for line in lines):
        return "percentages"
    percentages = sum(line.sums_to(100.0) for line in lines)
    if percentages < MOSTLY * len(lines) and all(
        value.is_integer() for line in lines for value in line.shares.values()
    ):
        return "counts"
    usual = max(TOTALS.values(), key=lambda total: sum(line.sums_to(total) for line in lines))
    odd = next(line for line in lines if not line.sums_to(usual))
    raise InputError(
        f"{odd.where}: the shares of {odd.title} sum to {odd.total:.6g}, not to {usual:g}; proportions sum to 1 and "
        "percentages to 100; correct them, state the unit with --priors-unit, or name the columns of classes with "
        "--classes."
    )


def _as_stated_priors(line: PriorsLine, unit: str, classes: Sequence[str]) -> StatedPriors:
    """Return the priors of a line with their uncertainty."""
    values = np.array([line.shares[name] for name in classes])
    if unit == "counts":
        if line.total <= 0 or not all(value.is_integer() for value in line.shares.values()):
            raise InputError(
                f"{line.where}: {line.title} has no counts; give whole numbers of cases, not all of them 0."
            )
        return StatedPriors(values / line.total, line.total, counted=True)
    total = TOTALS[unit]
    if values.max() > total * (1 + SUM_TOLERANCE):
        raise InputError(
            f"{line.where}: a share of {line.title} is above {total:g}; {unit} are expected (--priors-unit)."
        )
    if not line.sums_to(total):
        raise InputError(f"{line.where}: the shares of {line.title} sum to {line.total:.6g}; {unit} sum to {total:g}.")
    priors = validate_priors((values / line.total)[None], where=line.where)[0]
    widths = np.array([line.widths.get(name, 0.0) for name in classes]) / line.total
    return StatedPriors(priors, _equivalent_cases(priors, widths), line.rounding / total)


def _equivalent_cases(priors: Matrix, widths: Matrix) -> float:
    """Return the number of cases whose counts give intervals of these widths: pi (1 - pi) / variance."""
    known = (widths > 0) & (priors > 0) & (priors < 1)
    if not known.any():
        return math.inf
    return float(np.median(priors[known] * (1 - priors[known]) / (widths[known] / (2 * Z_95)) ** 2))
