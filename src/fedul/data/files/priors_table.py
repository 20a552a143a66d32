"""Class priors from tables with the columns client, set and one per class: proportions, percentages or counts.

The uncertainty of priors comes from columns CLASS_low and CLASS_high (95 % intervals), or from the counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fedul.core import SUM_TOLERANCE, Z_95, Matrix, validate_priors
from fedul.data.files.schema.column_problems import has_thousands_separator
from fedul.data.files.tables import Table, open_tables
from fedul.errors import InputError, did_you_mean

TOTALS = {"proportions": 1.0, "percentages": 100.0}
MAX_ROUNDING = 0.02
"""Largest deviation of the sum of rounded shares, as a share of the total."""


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
    """

    source: str
    classes: tuple[str, ...]
    clients: Mapping[str, Mapping[str, StatedPriors]]

    def priors_of(self, client: str) -> Mapping[str, StatedPriors]:
        """Return the priors of a client by set; empty if the table has none."""
        return self.clients.get(client) or self.clients.get("") or {}


def read_priors(
    source: str | Table, *, unit: str = "auto", client_column: str | None = None, set_column: str | None = None
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

    Returns
    -------
    PriorsTable
    """
    try:
        return _read(source, unit, (client_column or "client", set_column or "set"))
    except InputError as problem:
        if isinstance(source, Table) or not Path(source).expanduser().is_dir() or str(problem).startswith(f"{source}:"):
            raise
        raise InputError(f"{source}: is a folder, of which every table is read: {problem}") from None


def _read(source: str | Table, unit: str, keys: tuple[str, str]) -> PriorsTable:
    name = source.source if isinstance(source, Table) else source
    lines: list[_Line] = []
    classes: tuple[str, ...] = ()
    for table in open_tables(source):
        columns = _find_columns(table, keys)
        if classes and sorted(columns.classes) != sorted(classes):
            raise InputError(
                f"{table.source}: has the classes {', '.join(columns.classes)}, but other files have "
                f"{', '.join(classes)}."
            )
        classes = classes or columns.classes
        lines += [_parse_line(table.source, where, cells, columns) for where, cells in table.text_rows()]
    if not lines:
        raise InputError(f"{name}: names no set; give one line per set, with client, set and a column for each class.")
    unit = _infer_unit(lines) if unit == "auto" else unit
    clients: dict[str, dict[str, StatedPriors]] = {}
    seen: dict[tuple[str, str], _Line] = {}
    for line in lines:
        stated, before = _as_stated_priors(line, unit, classes), seen.setdefault((line.client, line.set), line)
        known = clients.setdefault(line.client, {}).setdefault(line.set, stated)
        if before is not line and (before.file == line.file or not np.allclose(known.shares, stated.shares)):
            again = " twice" if before.file == line.file else f" and in {before.where} with other values"
            raise InputError(f"{line.where}: {line.title} occurs{again}; keep one.")
    return PriorsTable(name, classes, clients)


@dataclass(frozen=True, eq=False)
class _Line:
    """One line of a table."""

    file: str
    where: str
    client: str
    set: str
    shares: Mapping[str, float]
    widths: Mapping[str, float] = field(default_factory=dict)  # high - low
    rounding: float = 0.0  # half of the last decimal place
    percent: bool = False  # there are % signs

    @property
    def total(self) -> float:
        return math.fsum(self.shares.values())

    @property
    def title(self) -> str:
        return f"set '{self.set}'" + (f" of client '{self.client}'" if self.client else "")

    def sums_to(self, total: float) -> bool:
        """Return whether the shares sum to a total, up to the rounding that their decimal places show."""
        slack = max(SUM_TOLERANCE * total, min(len(self.shares) * self.rounding, MAX_ROUNDING * total))
        return abs(self.total - total) <= slack + 1e-9


@dataclass(frozen=True)
class _Columns:
    """Columns of a table of priors."""

    client: str | None
    set: str
    classes: tuple[str, ...]
    bounds: frozenset[str]  # CLASS_low, CLASS_high


def _find_columns(table: Table, keys: tuple[str, str]) -> _Columns:
    client, set_ = (
        next((name for name in (key, usual) if name in table.columns), None)
        for key, usual in zip(keys, ("client", "set"), strict=True)
    )
    if set_ is None:
        guess = did_you_mean(keys[1], table.columns) or ";"
        raise InputError(
            f"{table.source}: there is no column '{keys[1]}'{guess} a table of priors has client, set and a column "
            "for each class."
        )
    others = [name for name in table.columns if name not in (client, set_)]
    bounds = frozenset(
        name for name in others for end in ("_low", "_high") if name.removesuffix(end) in others and name.endswith(end)
    )
    classes = tuple(name for name in others if name not in bounds)
    if len(classes) < 2:
        raise InputError(
            f"{table.source}: names {'1 class' if classes else 'no class'}; a table of priors has a column for each of "
            "two or more."
        )
    for name in classes:
        if name[0] in "=+-@":  # a spreadsheet would run it, here and in the table of predictions
            raise InputError(f"{table.source}: class '{name}' begins like a formula; rename it.")
        if (f"{name}_low" in bounds) != (f"{name}_high" in bounds):
            raise InputError(
                f"{table.source}: class '{name}' has only one of {name}_low and {name}_high; give both or none."
            )
    return _Columns(client, set_, classes, bounds)


def _parse_line(file: str, where: str, cells: Mapping[str, str], columns: _Columns) -> _Line:
    classes, bounds = columns.classes, columns.bounds
    texts = {name: cells[name].strip() for name in (*classes, *bounds)}
    numbers = {name: _parse_share(text, name, where) for name, text in texts.items()}
    for name in classes:
        if f"{name}_low" in bounds and not numbers[f"{name}_low"] <= numbers[name] <= numbers[f"{name}_high"]:
            raise InputError(f"{where}: the share of '{name}' is not between its low and high; correct them.")
    if not cells[columns.set].strip():
        raise InputError(f"{where}: names no set; fill column '{columns.set}'.")
    places = max(len(texts[name].rstrip("% ").partition(".")[2]) for name in classes)
    return _Line(
        file,
        where,
        cells[columns.client].strip() if columns.client else "",
        cells[columns.set].strip(),
        {name: numbers[name] for name in classes},
        {name: numbers[f"{name}_high"] - numbers[f"{name}_low"] for name in classes if f"{name}_low" in bounds},
        rounding=0.5 * 10.0**-places,
        percent=any("%" in text for text in texts.values()),
    )


def _parse_share(text: str, name: str, where: str) -> float:
    try:
        number = float(text.rstrip("%").strip())
    except ValueError:
        if has_thousands_separator(text.rstrip("% ")):
            raise InputError(
                f"{where}: '{text[:40]}' of '{name}' has thousands separators or a decimal comma; write it with "
                "a point at most."
            ) from None
        raise InputError(f"{where}: '{text[:40]}' of '{name}' is not a number; give a prior for every class.") from None
    if not math.isfinite(number) or number < 0:
        why = ", because it is negative" if number < 0 else ""
        raise InputError(f"{where}: '{text[:40]}' of '{name}' is not a share{why}; give values from 0 upwards.")
    return number


def _infer_unit(lines: Sequence[_Line]) -> str:
    """Return what the numbers are, if there is no doubt."""
    if all(line.sums_to(1.0) for line in lines):
        return "proportions"
    if all(line.percent or line.sums_to(100.0) for line in lines):
        return "percentages"
    if all(value.is_integer() for line in lines for value in line.shares.values()):
        return "counts"
    usual = max(TOTALS.values(), key=lambda total: sum(line.sums_to(total) for line in lines))
    odd = next(line for line in lines if not line.sums_to(usual))
    raise InputError(
        f"{odd.where}: the shares of {odd.title} sum to {odd.total:.6g}, not to {usual:g}; proportions sum to 1 and "
        "percentages to 100; correct them, or state the unit with --priors-unit."
    )


def _as_stated_priors(line: _Line, unit: str, classes: Sequence[str]) -> StatedPriors:
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
