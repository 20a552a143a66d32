"""Class priors from tables with the columns client, set and one for each class: proportions, percentages or counts.

How sure they are may be said too: by columns CLASS_low and CLASS_high (95 % intervals), or by the counts themselves.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fedul.data.tables import TableFile, open_table, table_paths
from fedul.errors import InputError, did_you_mean
from fedul.priors import SUM_TOLERANCE, Matrix, validate
from fedul.schema.faults import is_grouped

UNITS = ("auto", "proportions", "percentages", "counts")
WHOLE = {"proportions": 1.0, "percentages": 100.0}
DECIMAL_COMMA = re.compile(r"\s*[+-]?\d*,\d+\s*%?\s*$")
MOST_ROUNDING = 0.02
"""What the sum of rounded shares may be off by, as a share of the whole."""
NORMAL_95 = 2 * 1.959964
"""Widths of a 95 % interval in standard deviations."""


@dataclass(frozen=True, eq=False)
class SetPriors:
    """What a table says of one set."""

    shares: Matrix  # (K,)
    sure: float = math.inf  # as sure as counts of so many cases would make them; infinity where nothing is said
    rounding: float = 0.0  # how far a share may be from the one that was rounded to it


@dataclass(frozen=True, eq=False)
class PriorsTable:
    """What tables of priors say."""

    source: str
    classes: tuple[str, ...]
    clients: Mapping[str, Mapping[str, SetPriors]]  # sets by name, in the order of the file; "" is for all clients

    def of(self, client: str) -> Mapping[str, SetPriors] | None:
        return self.clients.get(client) or self.clients.get("")


def read_priors(
    named: str, *, unit: str = "auto", client_column: str | None = None, set_column: str | None = None
) -> PriorsTable:
    """The class priors of a file, or of several that agree where they speak of the same set."""
    try:
        return _read(named, unit, client_column, set_column)
    except InputError as problem:
        if not Path(named).expanduser().is_dir() or str(problem).startswith(f"{named}:"):
            raise
        raise InputError(f"{named}: is a folder, of which every table is read: {problem}") from None


def _read(named: str, unit: str, client_column: str | None, set_column: str | None) -> PriorsTable:
    lines: list[_Line] = []
    classes: tuple[str, ...] = ()
    for path in table_paths(named):
        found, own = _lines_of(open_table(path), (client_column or "client", set_column or "set"))
        if classes and sorted(found) != sorted(classes):
            raise InputError(f"{path}: has the classes {', '.join(found)}, but other files have {', '.join(classes)}.")
        classes = classes or found
        lines += own
    if not lines:
        raise InputError(f"{named}: names no set; give a line for each, with client,set and a column for each class.")
    unit = _unit(lines) if unit == "auto" else unit
    clients: dict[str, dict[str, SetPriors]] = {}
    first: dict[tuple[str, str], _Line] = {}
    for line in lines:
        found_here, before = _read_as(line, unit, classes), first.setdefault((line.client, line.set), line)
        known = clients.setdefault(line.client, {}).setdefault(line.set, found_here)
        if before is not line and (before.file == line.file or not np.allclose(known.shares, found_here.shares)):
            disagree = " twice" if before.file == line.file else f" and in {before.where} with other values"
            raise InputError(f"{line.where}: {line.named} stands there{disagree}; keep one.")
    return PriorsTable(named, classes, clients)


@dataclass(frozen=True, eq=False)
class _Line:
    """One line of a table, as it stands there."""

    file: Path
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
    def named(self) -> str:
        return f"set '{self.set}'" + (f" of client '{self.client}'" if self.client else "")


def _lines_of(table: TableFile, keys: tuple[str, str]) -> tuple[tuple[str, ...], list[_Line]]:
    client, set_ = (
        next((name for name in (key, usual) if name in table.columns), None)
        for key, usual in zip(keys, ("client", "set"), strict=True)
    )
    if set_ is None:
        guess = did_you_mean(keys[1], table.columns) or ";"
        raise InputError(
            f"{table.path}: there is no column '{keys[1]}'{guess} a table of priors has client,set and a column "
            "for each class."
        )
    others = [name for name in table.columns if name not in (client, set_)]
    bounds = {
        name for name in others for end in ("_low", "_high") if name.removesuffix(end) in others and name.endswith(end)
    }
    classes = tuple(name for name in others if name not in bounds)
    if len(classes) < 2:
        raise InputError(
            f"{table.path}: names {'1 class' if classes else 'no class'}; a table of priors has a column for each of "
            "two or more."
        )
    for name in classes:
        if name[0] in "=+-@":  # a spreadsheet would run it, here and in the table of predictions
            raise InputError(f"{table.path}: class '{name}' begins as a formula does; rename it.")
        if (f"{name}_low" in bounds) != (f"{name}_high" in bounds):
            raise InputError(
                f"{table.path}: class '{name}' has only one of {name}_low and {name}_high; give both or none."
            )
    return classes, [_line(table, where, cells, client, set_, classes, bounds) for where, cells in _cells(table)]


def _line(
    table: TableFile,
    where: str,
    cells: Mapping[str, str],
    client: str | None,
    set_: str,
    classes: Sequence[str],
    bounds: set[str],
) -> _Line:
    texts = {name: cells[name].strip() for name in (*classes, *bounds)}
    numbers: dict[str, float] = {}
    for name, text in texts.items():
        try:
            numbers[name] = float(text.rstrip("%").strip())
        except ValueError:
            if is_grouped(text.rstrip("% ")):
                raise InputError(
                    f"{where}: '{text[:40]}' of '{name}' has thousands separators or a decimal comma; write it with "
                    "a point at most."
                ) from None
            raise InputError(
                f"{where}: '{text[:40]}' of '{name}' is not a number; give a prior for every class."
            ) from None
        if not math.isfinite(numbers[name]) or numbers[name] < 0:
            why = ", being negative" if numbers[name] < 0 else ""
            raise InputError(f"{where}: '{text[:40]}' of '{name}' is no share{why}; give values from 0 upwards.")
    for name in classes:
        if f"{name}_low" in bounds and not numbers[f"{name}_low"] <= numbers[name] <= numbers[f"{name}_high"]:
            raise InputError(f"{where}: the share of '{name}' is not between its low and high; mend them.")
    if not cells[set_].strip():
        raise InputError(f"{where}: names no set; fill column '{set_}'.")
    places = max(len(texts[name].rstrip("% ").partition(".")[2]) for name in classes)
    return _Line(
        table.path,
        where,
        cells[client].strip() if client else "",
        cells[set_].strip(),
        {name: numbers[name] for name in classes},
        {name: numbers[f"{name}_high"] - numbers[f"{name}_low"] for name in classes if f"{name}_low" in bounds},
        rounding=0.5 * 10.0**-places,
        percent=any("%" in text for text in texts.values()),
    )


def _cells(table: TableFile) -> Iterator[tuple[str, dict[str, str]]]:
    """Where each line stands, and its cells by column."""
    if not table.separator:
        for block in table.blocks():
            for number, row in enumerate(block.to_pylist(), start=1):
                yield (
                    f"{table.path}, row {number}",
                    {name: "" if cell is None else str(cell) for name, cell in row.items()},
                )
        return
    try:
        with table.path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, delimiter=table.separator)
            next(reader)
            for cells in reader:
                where = f"{table.path}, line {reader.line_num}"
                if not any(cell.strip() for cell in cells):
                    continue
                if len(cells) != len(table.columns):
                    raise InputError(f"{where}: {len(cells)} cells for {len(table.columns)} columns; mend the line.")
                if table.separator == ";":
                    cells = [cell.replace(",", ".") if DECIMAL_COMMA.match(cell) else cell for cell in cells]
                yield where, dict(zip(table.columns, cells, strict=True))
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise InputError(f"{table.path}: not a readable CSV file ({problem}); save it as CSV in UTF-8.") from None


def _unit(lines: Sequence[_Line]) -> str:
    """What the numbers are, where there is no doubt."""
    if all(_sums_to(line, 1.0) for line in lines):
        return "proportions"
    if all(line.percent or _sums_to(line, 100.0) for line in lines):
        return "percentages"
    if all(value.is_integer() for line in lines for value in line.shares.values()):
        return "counts"
    usual = max(WHOLE.values(), key=lambda whole: sum(_sums_to(line, whole) for line in lines))
    odd = next(line for line in lines if not _sums_to(line, usual))
    raise InputError(
        f"{odd.where}: the shares of {odd.named} sum to {odd.total:.6g}; proportions sum to 1 and percentages to 100; "
        "mend them, or say what they are with --priors-unit."
    )


def _sums_to(line: _Line, whole: float) -> bool:
    """Up to the rounding that its decimal places show."""
    slack = max(SUM_TOLERANCE * whole, min(len(line.shares) * line.rounding, MOST_ROUNDING * whole))
    return abs(line.total - whole) <= slack + 1e-9


def _read_as(line: _Line, unit: str, classes: Sequence[str]) -> SetPriors:
    """The priors of a line, and how sure they are."""
    values = np.array([line.shares[name] for name in classes])
    total = line.total
    if unit == "counts":
        if total <= 0 or not all(value.is_integer() for value in line.shares.values()):
            raise InputError(
                f"{line.where}: {line.named} has no counts; give whole numbers of cases, not all of them 0."
            )
        return SetPriors(values / total, total)
    whole = WHOLE[unit]
    if values.max() > whole * (1 + SUM_TOLERANCE):
        raise InputError(
            f"{line.where}: a share of {line.named} is above {whole:g}; {unit} are expected (--priors-unit)."
        )
    if not _sums_to(line, whole):
        raise InputError(f"{line.where}: the shares of {line.named} sum to {total:.6g}; {unit} sum to {whole:g}.")
    priors = validate((values / total)[None], where=line.where)[0]
    widths = np.array([line.widths.get(name, 0.0) for name in classes]) / total
    return SetPriors(priors, _as_counts(priors, widths) if widths.any() else math.inf, line.rounding / whole)


def _as_counts(priors: Matrix, widths: Matrix) -> float:
    """The number of cases whose counts would be as sure as intervals of these widths: pi (1 - pi) / variance."""
    told = (widths > 0) & (priors > 0) & (priors < 1)
    if not told.any():
        return math.inf
    return float(np.median(priors[told] * (1 - priors[told]) / (widths[told] / NORMAL_95) ** 2))
