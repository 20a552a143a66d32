"""Class priors from a CSV table, whatever the order of its rows and columns, or a sentence about the line."""

from __future__ import annotations

from pathlib import Path

import pytest
from numpy.testing import assert_allclose

from fedul.data.priors_table import read_priors
from fedul.errors import InputError

CLIENTS, CLASSES = ["north", "south"], ["cat", "dog"]
GOOD = "client,set,cat,dog\nnorth,jan,0.2,0.8\nsouth,jan,0.5,0.5\nnorth,feb,1,0\n"


def read(tmp_path: Path, content: str | bytes) -> dict[str, list[list[float]]]:
    file = tmp_path / "priors.csv"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return {name: matrix.tolist() for name, matrix in read_priors(str(file), CLIENTS, CLASSES).items()}


def test_every_client_gets_its_rows_in_the_order_of_the_file(tmp_path: Path) -> None:
    assert read(tmp_path, GOOD) == {"north": [[0.2, 0.8], [1, 0]], "south": [[0.5, 0.5]]}


@pytest.mark.parametrize(
    "content",
    [
        "client,set,dog,cat\nnorth,jan,0.8,0.2\nsouth,jan,0.5,0.5\nnorth,feb,0,1\n",
        "\ufeff" + GOOD,
        GOOD.replace("\n", "\r\n"),
        GOOD.replace("\n", "\n\n"),
        GOOD.replace(",", " , "),
        GOOD + " , , , \n",
        GOOD.replace("north", '"north"'),
    ],
    ids=["other columns first", "byte-order mark", "line ends", "empty lines", "blanks", "empty cells", "quotes"],
)
def test_what_spreadsheets_do_to_a_table_does_not_matter(tmp_path: Path, content: str) -> None:
    assert read(tmp_path, content) == read(tmp_path, GOOD)


def test_rounded_priors_are_made_to_sum_to_one(tmp_path: Path) -> None:
    found = read(tmp_path, GOOD.replace("0.2,0.8", "0.333,0.6665"))
    assert_allclose(sum(found["north"][0]), 1, rtol=1e-15)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", r"priors\.csv: the first line must be client,set,cat,dog; got nothing"),
        ("client,set,cat\n", "the first line must be client,set,cat,dog; got client,set,cat"),
        ("set,client,cat,dog\n", "the first line must be"),
        ("client,set,cat,cat\n", "the first line must be"),
        ("client,set,cat,owl\n", "the first line must be"),
        ("client,set,cat,dog,\n", "the first line must be"),
        ("client,set,cat,dog\n", "priors for no client, but the clients are north, south"),
        (GOOD.replace("south", "east"), "priors for east, north, but the clients are north, south"),
        (GOOD + "west,jan,0.5,0.5\n", "priors for north, south, west, but"),
        (GOOD + "north,mar,0.5\n", r"priors\.csv, line 5: 3 cells for 4 columns"),
        (GOOD + "north,mar,0.5,0.5,\n", "line 5: 5 cells for 4 columns"),
        (GOOD + "north,mar,half,0.5\n", "line 5: a prior is not a number"),
        (GOOD + "north,mar,,1\n", "line 5: a prior is not a number"),
        (GOOD + "north,mar,nan,1\n", "line 5: row 1 has a value that is missing or infinite"),
        (GOOD + "north,mar,-0.5,1.5\n", "line 5: row 1 has a negative value"),
        (GOOD + "north,mar,20,80\n", "line 5: row 1 has a value above 1 .* not percentages"),
        (GOOD + "north,mar,0.5,0.6\n", "line 5: row 1 sums to 1.1"),
        (GOOD + "north, jan ,0.5,0.5\n", "line 5: set 'jan' of client 'north' stands there twice"),
        (b"client,set,cat,dog\nnorth,jan,0.5,0.5\xff\n", "not a readable CSV file"),
        ('client,set,cat,dog\nnorth,"' + "x" * 200_000 + '",0.5,0.5\n', "not a readable CSV file"),
    ],
)
def test_a_table_that_is_wrong_is_refused_with_its_line(tmp_path: Path, content: str | bytes, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        read(tmp_path, content)


def test_a_table_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"none\.csv: there is no such file; --priors takes a CSV with client,set,cat,dog"
    ):
        read_priors(str(tmp_path / "none.csv"), CLIENTS, CLASSES)
    with pytest.raises(InputError, match="not a readable CSV file"):
        read_priors(str(tmp_path), CLIENTS, CLASSES)
