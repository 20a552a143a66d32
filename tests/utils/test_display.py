"""Tables in narrow terminals: numbers are never cut."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from fedul._utils.display import RichDisplay, counted, make_table

NUMBERS = ["1,282", "12,345", "45.83 (13.13)*", "0.138", "9.9 %"]
HEADS = ["rows", "labels used", "error on held-out rows (std)", "p-value", "worth"]


def render(width: int, name: str = "supervised:labels=0.1, linear") -> str:
    table = make_table(["method"], HEADS, "A title")
    table.add_row(name, *NUMBERS)
    text = io.StringIO()
    Console(file=text, width=width, highlight=False).print(table)
    return text.getvalue()


@pytest.mark.parametrize("width", range(60, 121, 5))
def test_no_number_and_no_head_is_cut_from_60_columns_on(width: int) -> None:
    text = render(width)
    assert all(len(line) <= width for line in text.splitlines())
    for number in NUMBERS:
        assert number in text
    assert [word for head in HEADS for word in head.split() if word not in text] == []


def test_a_name_is_cut_only_where_numbers_need_the_room() -> None:
    assert "supervised:labels=0.1, linear" in render(120)
    assert "…" in render(60)
    assert "…" not in render(60, name="fedul")


def test_cells_of_several_words_are_wrapped_between_words() -> None:
    table = make_table(["class"], ["found (recall)", "right when predicted (precision)"], wrap_numbers=True)
    table.add_row("pneumonia", "83.0% (65.2% to 92.7%)", "87.7% (72.9% to 94.9%)")
    text = io.StringIO()
    Console(file=text, width=40, highlight=False).print(table)
    assert all(word in text.getvalue() for word in ("83.0%", "(65.2%", "92.7%)", "(precision)"))


def test_one_is_singular() -> None:
    assert [counted(count, "row") for count in (0, 1, 2)] == ["0 rows", "1 row", "2 rows"]


def test_a_result_is_returned_and_not_shown_where_rich_finds_a_notebook(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Result(RichDisplay):
        def __rich__(self) -> str:
            return "[bold]85 %[/]"

    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert repr(Result()) == "85 %"
    assert "85 %" in Result()._repr_html_()
    assert capsys.readouterr().out == ""
