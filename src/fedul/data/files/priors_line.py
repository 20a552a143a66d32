"""Columns and lines of a table of class priors: which columns are classes, and the numbers of each line."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

from fedul.core import SUM_TOLERANCE
from fedul.data.files.schema.column_problems import has_thousands_separator
from fedul.data.files.tables import Table
from fedul.errors import InputError, did_you_mean, list_names

MAX_ROUNDING = 0.02
"""Largest deviation of the sum of rounded shares, as a share of the total."""
TOTALS = {"proportions": 1.0, "percentages": 100.0}
MOST_EXTRA = 3
"""Columns beside those of classes that are searched for."""
MOST_COLUMNS = 40
"""Columns of a table in which they are searched for."""
SIZE_NAMES = {
    *("n", "count", "counts", "total", "sum", "rows", "size", "beds", "population"),
    *("year", "month", "week", "day", "id", "index"),
}
"""Names of columns of numbers that are hardly classes."""


@dataclass(frozen=True)
class PriorColumns:
    """Columns of a table of priors.

    Parameters
    ----------
    client : str or None
        Column of the client; None if there is none.
    set : str
        Column of the set.
    classes : tuple of str
        Columns of the classes.
    bounds : frozenset of str
        Columns of intervals: CLASS_low, CLASS_high.
    rest : str
        Class without a column, which has the rest of every set; empty if all classes have one.
    order : tuple of str
        All classes in order.
    """

    client: str | None
    set: str
    classes: tuple[str, ...]
    bounds: frozenset[str]
    rest: str
    order: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class PriorsLine:
    """One line of a table of priors.

    Parameters
    ----------
    file, where : str
        The table, and the line for messages.
    client, set : str
        Names of the client and the set.
    shares : mapping of str to float
        Numbers by class, as they are written.
    decimals : mapping of str to int
        Decimal places of each of them.
    widths : mapping of str to float
        By class, high - low.
    percent : bool
        Whether there are % signs.
    """

    file: str
    where: str
    client: str
    set: str
    shares: Mapping[str, float]
    decimals: Mapping[str, int]
    widths: Mapping[str, float] = field(default_factory=dict)
    percent: bool = False

    @property
    def total(self) -> float:
        """Sum of the numbers."""
        return math.fsum(self.shares.values())

    @property
    def rounding(self) -> float:
        """Largest rounding error of a number: half of the last decimal place."""
        return 0.5 * 10.0 ** -max(self.decimals[name] for name in self.shares if name in self.decimals)

    @property
    def title(self) -> str:
        """The set and its client, for messages."""
        return f"set '{self.set}'" + (f" of client '{self.client}'" if self.client else "")

    def sums_to(self, total: float) -> bool:
        """Return whether the shares sum to a total, up to the rounding that their decimal places show."""
        slack = max(SUM_TOLERANCE * total, min(len(self.shares) * self.rounding, MAX_ROUNDING * total))
        return abs(self.total - total) <= slack + 1e-9

    def without(self, names: Iterable[str]) -> PriorsLine:
        """Return the line without some columns."""
        return replace(self, shares={name: share for name, share in self.shares.items() if name not in set(names)})

    def with_rest(self, rest: str, total: float) -> PriorsLine:
        """Return the line with the class that has no column: it has the rest of the total."""
        ((name, share),) = self.shares.items()
        if share > total:
            raise InputError(
                f"{self.where}: {share:g} of '{name}' is above {total:g}, so nothing is left for '{rest}'; correct it, "
                "or give a column for each class."
            )
        return replace(
            self,
            shares={name: share, rest: total - share},
            widths={each: self.widths[name] for each in (name, rest) if name in self.widths},
        )


def find_columns(table: Table, keys: tuple[str, str], classes: Sequence[str] = ()) -> PriorColumns:
    """Return which columns name client and set, and which are classes.

    Parameters
    ----------
    table : Table
        A table of priors.
    keys : tuple of str
        Columns of client and set, if they are not "client" and "set".
    classes : sequence of str
        Classes that the user names; empty if every other column is one. One of two classes may have no column.
    """
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
    present = tuple(name for name in (classes or others) if name in others and (classes or name not in bounds))
    missing = [name for name in classes if name not in others]
    if missing and not (len(classes) == 2 and len(missing) == 1):
        hint = did_you_mean(missing[0], others) or ";"
        raise InputError(
            f"{table.source}: there is no column for class '{missing[0]}' of --classes{hint} the columns are "
            f"{list_names(others)}."
        )
    if not present:
        raise InputError(f"{table.source}: names no class; a table of priors has a column for each class.")
    rest = missing[0] if missing else f"not {present[0]}" if len(present) == 1 and not classes else ""
    for name in (*present, rest):
        if name and name[0] in "=+-@":  # a spreadsheet would run it, here and in the table of predictions
            raise InputError(f"{table.source}: class '{name}' begins like a formula; rename it.")
        if (f"{name}_low" in bounds) != (f"{name}_high" in bounds):
            raise InputError(
                f"{table.source}: class '{name}' has only one of {name}_low and {name}_high; give both or none."
            )
    used = frozenset(name for name in bounds if name.rpartition("_")[0] in present)
    return PriorColumns(client, set_, present, used, rest, tuple(classes) or (*present, *filter(None, [rest])))


def parse_line(file: str, where: str, cells: Mapping[str, str], columns: PriorColumns) -> PriorsLine:
    """Return the numbers of a line of a table."""
    classes, bounds = columns.classes, columns.bounds
    texts = {name: cells[name].strip() for name in (*classes, *bounds)}
    numbers = {name: _parse_share(text, name, where) for name, text in texts.items()}
    for name in classes:
        if f"{name}_low" in bounds and not numbers[f"{name}_low"] <= numbers[name] <= numbers[f"{name}_high"]:
            raise InputError(f"{where}: the share of '{name}' is not between its low and high; correct them.")
    if not cells[columns.set].strip():
        raise InputError(f"{where}: names no set; fill column '{columns.set}'.")
    return PriorsLine(
        file,
        where,
        cells[columns.client].strip() if columns.client else "",
        cells[columns.set].strip(),
        {name: numbers[name] for name in classes},
        {name: len(texts[name].rstrip("% ").partition(".")[2]) for name in classes},
        {name: numbers[f"{name}_high"] - numbers[f"{name}_low"] for name in classes if f"{name}_low" in bounds},
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
        raise InputError(
            f"{where}: '{text[:40]}' of '{name}' is not a number; give a prior for every class, or name the columns "
            "of classes with --classes."
        ) from None
    if not math.isfinite(number) or number < 0:
        why = ", because it is negative" if number < 0 else ""
        raise InputError(f"{where}: '{text[:40]}' of '{name}' is not a share{why}; give values from 0 upwards.")
    return number


def refuse_extra_columns(source: str, lines: Sequence[PriorsLine], unit: str) -> None:
    """Raise an InputError for columns of numbers that are not classes.

    They are found by the sums: without them, the shares of every set sum to 1 or 100, or one column is the total of the
    others. Among counts, names such as 'n' and 'beds' are not taken for classes either.
    """
    names = list(lines[0].shares)
    totals = [TOTALS[unit]] if unit in TOTALS else list(TOTALS.values()) if unit == "auto" else []
    if _common_total(lines, (), totals):
        return
    extra = _without_which_shares_sum(lines, names, totals)
    others = ",".join(name for name in names if name not in extra)
    if extra:
        one = len(extra) == 1
        quoted = list_names([f"'{name}'" for name in extra])
        raise InputError(
            f"{source}: {'column' if one else 'columns'} {quoted} {'is not a class' if one else 'are not classes'}: "
            f"without {'it' if one else 'them'}, the shares of every set sum to "
            f"{_common_total(lines, extra, totals):g}; name the classes with --classes {others}"
            + (", or use --priors-unit counts if these are counts." if unit == "auto" else ".")
        )
    sums = [name for name in names if len(names) > 2 and all(line.total == 2 * line.shares[name] for line in lines)]
    for name in sums or [name for name in names if name.casefold() in SIZE_NAMES]:
        why = "is the sum of the others" if sums else "looks like a size or a key"
        left = [each for each in names if each != name]
        rest = "" if len(left) > 1 else ",NAME, where NAME is the class that has the rest"
        raise InputError(
            f"{source}: column '{name}' {why}, not a class; name the classes with --classes {','.join(left)}{rest}."
        )


def _without_which_shares_sum(
    lines: Sequence[PriorsLine], names: Sequence[str], totals: Sequence[float]
) -> tuple[str, ...]:
    """Return the fewest columns without which all lines sum to a total; empty if there are none."""
    if len(names) > MOST_COLUMNS:
        return ()
    for count in range(1, min(MOST_EXTRA, len(names) - 2) + 1):
        for extra in combinations(names, count):
            if _common_total(lines, extra, totals):
                return extra
    return ()


def _common_total(lines: Sequence[PriorsLine], extra: Sequence[str], totals: Sequence[float]) -> float:
    """Return what all lines sum to without some columns; 0 if they do not."""
    for total in totals:
        if all(line.without(extra).sums_to(total) for line in lines):
            return total
    return 0.0
