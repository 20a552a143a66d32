"""HTML that cannot be broken by what it shows: text is escaped unless its type says that it is markup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape

VOID = {"meta", "br"}
SPACE = "\u00a0"
"""Keeps a number and its unit on one line."""


class Html(str):
    """Markup. Any other string is text, and is escaped where it is put into markup."""

    __slots__ = ()


Content = str | Html | Iterable[str | Html] | None


def element(name: str, /, *content: Content, **attributes: str | float | None) -> Html:
    """An element; `class_` is class, `stroke_width` is stroke-width, and attributes that are None are left out.

    >>> element("p", "a < b ", element("b", "c"), class_="note")
    '<p class="note">a &lt; b <b>c</b></p>'
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_attribute(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    start = f"<{name}{written}>"
    return Html(start if name in VOID else f"{start}{joined(content)}</{name}>")


def joined(content: Iterable[Content]) -> Html:
    """Pieces of text and markup as markup."""
    return Html("".join(_piece(piece) for piece in content))


def _piece(piece: Content) -> str:
    if piece is None:
        return ""
    if isinstance(piece, str):
        return piece if isinstance(piece, Html) else escape(piece, quote=False)
    return joined(piece)


def _attribute(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.6g}"


@dataclass(frozen=True)
class Cell:
    """A cell of a table that is more than a number: words, or a share that its background shows too."""

    content: Content
    words: bool = False
    share: float | None = None  # 0..1
    span: int | None = None  # rows that it is the head of

    def written(self, name: str, **attributes: str) -> Html:
        kinds = [kind for kind, there in (("words", self.words), ("heat", self.share is not None)) if there]
        shade = None if self.share is None else f"--share:{100 * min(max(self.share, 0.0), 1.0):.4g}%"
        kind = " ".join(kinds) or None
        return element(name, self.content, class_=kind, style=shade, rowspan=self.span, **attributes)


def words(content: Content) -> Cell:
    """A cell of words, set from the left as numbers are not."""
    return Cell(content, words=True)


Cells = Sequence[Content | Cell]


@dataclass(frozen=True)
class Row:
    """A row of a table: what it is about, then its cells. Heads with a span stand for the rows below too."""

    heads: Cells
    cells: Cells


def table(name: str, caption: str, heads: Cells, rows: Sequence[Row], kind: str | None = None) -> Html:
    """A table with a caption, which scrolls inside its own box where the screen is narrow."""
    title = f"{name}-caption"
    body = element(
        "table",
        element("caption", element("span", caption), id=title),
        element("thead", element("tr", [_cell(head).written("th", scope="col") for head in heads])),
        element("tbody", [_row(row) for row in rows]),
        class_=kind,
    )
    return element("div", body, class_="scroll", role="region", aria_labelledby=title, tabindex=0)


def _row(row: Row) -> Html:
    scopes = ["rowgroup" if isinstance(head, Cell) and (head.span or 1) > 1 else "row" for head in row.heads]
    heads = [_named(head).written("th", scope=scope) for head, scope in zip(row.heads, scopes, strict=True)]
    return element("tr", heads, [_cell(cell).written("td") for cell in row.cells])


def _named(head: Content | Cell) -> Cell:
    """A row's head in a box of its own, which lets a long name break and a short one not."""
    cell = _cell(head)
    return replace(cell, content=element("span", cell.content))


def _cell(content: Content | Cell) -> Cell:
    return content if isinstance(content, Cell) else Cell(content)


def section(name: str, title: str, *content: Content) -> Html:
    """A part of the page that the table of contents leads to."""
    heading = element("h2", title, id=f"{name}-title")
    return element("section", heading, *content, id=name, aria_labelledby=f"{name}-title")


def paragraph(*content: Content, kind: str | None = None) -> Html:
    """A paragraph of text."""
    return element("p", *content, class_=kind)


def command(line: str) -> Html:
    """A command to type."""
    return element("code", line)


def details(summary: str, *content: Content) -> Html:
    """What only some readers want, folded away."""
    return element("details", element("summary", summary), *content)
