"""A table that stays readable in a narrow terminal: numbers are never cut."""

from __future__ import annotations

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table

SHORTEST_NAME = 9
"""Width below which a name is not cut."""


class FittedTable(Table):
    """A table whose heads wrap and whose columns move together before a number would be cut."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        least = [self._narrowest(console, options, column) for column in self.columns]
        wanted = [self._widest(console, options, column) for column in self.columns]
        spaces = 3 * len(least) + 1  # a space on both sides of a cell, one between columns, and the edges
        if sum(least) + spaces > options.max_width:
            self.padding, spaces = (0, 0), len(least) + 1
        left = options.max_width - spaces - sum(least)
        # Rich would take what is missing from all columns alike. Names get what is left first, then heads.
        for place in sorted(range(len(least)), key=lambda place: not self.columns[place].no_wrap):
            more = max(0, min(wanted[place] - least[place], left))
            self.columns[place].width = least[place] + more
            left -= more
        yield from super().__rich_console__(console, options)

    def _widest(self, console: Console, options: ConsoleOptions, column: Column) -> int:
        """Return the width in which nothing is cut or wrapped."""
        wide = options.update(width=1000)
        longest = max(Measurement.get(console, wide, cell).maximum for cell in (column.header, *column.cells))
        return min(longest, column.max_width or longest)

    def _narrowest(self, console: Console, options: ConsoleOptions, column: Column) -> int:
        """Return the width in which no number and no word of the head is cut."""
        wide = options.update(width=1000)
        head = Measurement.get(console, wide, column.header).minimum
        if column.no_wrap:  # names, and bars, which have no head
            return max(head, min(self._widest(console, options, column), SHORTEST_NAME)) if column.header else 1
        cells = [Measurement.get(console, wide, cell) for cell in column.cells]
        wraps = column.overflow == "fold"
        return max([head, *(cell.minimum if wraps else cell.maximum for cell in cells)])
