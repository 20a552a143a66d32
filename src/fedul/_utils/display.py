"""Results that print as readable text: in a terminal, from Python and in a notebook."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

WIDTH = 100


class RichDisplay:
    """Base class of results that describe themselves with `__rich__`.

    ``print(result)`` gives the text that the command line prints, and a notebook shows it with its colours.
    """

    def __rich__(self) -> Any:
        raise NotImplementedError

    def __repr__(self) -> str:
        return self._render().export_text(styles=False).rstrip()

    def _repr_html_(self) -> str:
        return self._render().export_html(inline_styles=True, code_format="<pre>{code}</pre>")

    def _render(self) -> Console:
        from rich.console import Console

        console = Console(
            record=True,
            file=io.StringIO(),
            width=WIDTH,
            highlight=False,
            force_terminal=False,
            force_jupyter=False,  # else rich shows the text in a notebook too, beside what is returned
        )
        console.print(self)
        return console


def make_table(
    names: Iterable[str],
    numbers: Iterable[str],
    title: str | None = None,
    *,
    name_width: int | None = None,
    wrap_numbers: bool = False,
    wrap_names: bool = False,
) -> Table:
    """Return an empty table with columns of names on the left and of numbers on the right, which are never cut.

    Parameters
    ----------
    names, numbers : iterable of str
        Heads of the columns.
    title : str, optional
        Title above the table.
    name_width : int, optional
        Longest name; longer ones are cut.
    wrap_numbers : bool, default=False
        Whether columns of numbers may have several lines, if the terminal is too narrow.
    wrap_names : bool, default=False
        Whether names may have several lines; otherwise they are cut.
    """
    from rich import box

    from fedul._utils.fitted_table import FittedTable

    table = FittedTable(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for name in names:
        table.add_column(
            name, max_width=name_width, overflow="fold" if wrap_names else "ellipsis", no_wrap=not wrap_names
        )
    for name in numbers:
        table.add_column(name, justify="right", overflow="fold" if wrap_numbers else "ellipsis")
    return table


def counted(count: int, noun: str) -> str:
    """Return a count with its noun.

    Examples
    --------
    >>> counted(1, "client"), counted(2400, "row")
    ('1 client', '2,400 rows')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
