"""Class priors from tables, whatever spreadsheets do to them, or a sentence about the line."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose

from fedul.data.files.priors_table import PriorsTable, read_priors
from fedul.errors import InputError

GOOD = "client,set,cat,dog\nnorth,jan,0.2,0.8\nsouth,jan,0.5,0.5\nnorth,feb,1,0\n"


def read(tmp_path: Path, content: str | bytes, **options: Any) -> PriorsTable:
    file = tmp_path / "priors.csv"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_priors(str(file), **options)


def by_name(table: PriorsTable) -> dict[tuple[str, str], dict[str, float]]:
    """The share of each class in each set."""
    return {
        (client, name): dict(zip(table.classes, found.shares.round(12).tolist(), strict=True))
        for client, own in table.clients.items()
        for name, found in own.items()
    }


def test_every_client_gets_its_sets_in_the_order_of_the_file(tmp_path: Path) -> None:
    table = read(tmp_path, GOOD)
    assert table.classes == ("cat", "dog")
    assert {name: own.shares.tolist() for name, own in table.clients["north"].items()} == {
        "jan": [0.2, 0.8],
        "feb": [1, 0],
    }
    assert list(table.clients["south"]) == ["jan"]
    assert all(math.isinf(found.cases) for own in table.clients.values() for found in own.values())


@pytest.mark.parametrize(
    "content",
    [
        "client,set,dog,cat\nnorth,jan,0.8,0.2\nsouth,jan,0.5,0.5\nnorth,feb,0,1\n",
        "set,dog,client,cat\njan,0.8,north,0.2\njan,0.5,south,0.5\nfeb,0,north,1\n",
        "\ufeff" + GOOD,
        GOOD.replace("\n", "\r\n"),
        GOOD.replace("\n", "\n\n"),
        GOOD.replace(",", " , "),
        GOOD + " , , , \n",
        GOOD.replace("north", '"north"'),
        GOOD.replace(",", ";").replace(".", ","),
        GOOD.replace(",", ";").replace("0.", ","),
        GOOD.replace(",", "\t"),
        "client,set,cat,dog\nnorth,jan,20,80\nsouth,jan,50,50\nnorth,feb,100,0\n",
        "client,set,cat,dog\nnorth,jan,20%,80 %\nsouth,jan,50%,50%\nnorth,feb,100%,0%\n",
        "client,set,cat,dog\nnorth,jan,2,8\nsouth,jan,40,40\nnorth,feb,7,0\n",
    ],
    ids=[
        "other columns first",
        "client last",
        "byte-order mark",
        "line ends",
        "empty lines",
        "blanks",
        "empty cells",
        "quotes",
        "semicolons and decimal commas",
        "decimal commas without a zero",
        "tabs",
        "percentages",
        "percent signs",
        "counts",
    ],
)
def test_what_spreadsheets_do_to_a_table_does_not_matter(tmp_path: Path, content: str) -> None:
    assert by_name(read(tmp_path, content)) == by_name(read(tmp_path, GOOD))


def test_parquet_says_the_same(tmp_path: Path) -> None:
    columns = {"client": ["north", "south"], "set": ["jan", "jan"], "cat": [0.2, 0.5], "dog": [0.8, 0.5]}
    pq.write_table(pa.table(columns), tmp_path / "priors.parquet")
    assert by_name(read_priors(str(tmp_path / "priors.parquet")))["north", "jan"] == {"cat": 0.2, "dog": 0.8}


def test_columns_may_have_the_names_of_the_data(tmp_path: Path) -> None:
    named = read(tmp_path, GOOD.replace("client,set", "hospital,month"), client_column="hospital", set_column="month")
    assert by_name(named) == by_name(read(tmp_path, GOOD))


def test_priors_without_a_client_are_for_all(tmp_path: Path) -> None:
    table = read(tmp_path, "set,cat,dog\njan,0.2,0.8\nfeb,1,0\n")
    own = table.priors_of("any client")
    assert own is not None
    assert list(own) == ["jan", "feb"]


@pytest.mark.parametrize("shares", ["0.333,0.6665", "0.33,0.66", "33.4,66.7", "33,67"])
def test_rounded_priors_are_made_to_sum_to_one(tmp_path: Path, shares: str) -> None:
    found = read(tmp_path, f"client,set,cat,dog\nnorth,jan,{shares}\n").clients["north"]["jan"].shares
    assert_allclose(found.sum(), 1, rtol=1e-15)
    assert_allclose(found[0], 1 / 3, atol=0.006)


def test_counts_are_as_sure_as_they_are_many(tmp_path: Path) -> None:
    assert read(tmp_path, "client,set,cat,dog\na,x,30,170\n").clients["a"]["x"].cases == 200


def test_intervals_are_worth_the_counts_that_would_give_them(tmp_path: Path) -> None:
    share, cases = 0.3, 400
    half = 1.959964 * np.sqrt(share * (1 - share) / cases)
    bounds = f"{share - half:.9f},{share + half:.9f},{0.7 - half:.9f},{0.7 + half:.9f}"
    content = f"client,set,cat,dog,cat_low,cat_high,dog_low,dog_high\na,x,0.3,0.7,{bounds}\n"
    table = read(tmp_path, content)
    assert table.classes == ("cat", "dog")
    assert_allclose(table.clients["a"]["x"].cases, cases, rtol=1e-6)


def test_several_files_may_say_the_same_but_not_contradict_each_other(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("client,set,cat,dog\nnorth,jan,0.2,0.8\n")
    (tmp_path / "b.csv").write_text("client,set,dog,cat\nnorth,jan,0.8,0.2\nsouth,jan,0.5,0.5\n")
    assert list(read_priors(str(tmp_path)).clients) == ["north", "south"]
    assert by_name(read_priors(f"{tmp_path}/*.csv"))["north", "jan"] == {"cat": 0.2, "dog": 0.8}
    (tmp_path / "b.csv").write_text("client,set,cat,dog\nnorth,jan,0.3,0.7\n")
    with pytest.raises(InputError, match=r"b\.csv, line 2: set 'jan' of client 'north' occurs and in .*a\.csv, "):
        read_priors(str(tmp_path))
    (tmp_path / "b.csv").write_text("client,set,cat,owl\nnorth,jan,0.3,0.7\n")
    with pytest.raises(InputError, match=r"b\.csv: has the classes cat, owl, but other files have cat, dog"):
        read_priors(str(tmp_path))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", r"priors\.csv: is empty"),
        ("client,set\nnorth,jan\n", "names no class; a table of priors has a column for each class"),
        ("client,cat,dog\n", "there is no column 'set'; a table of priors has"),
        ("client,sets,cat,dog\n", "there is no column 'set': did you mean 'sets'?"),
        ("client;set;cat;dog\na;x;-10,0;110,0\n", "line 2: '-10.0' of 'cat' is not a share, because it is negative"),
        ('client,set,cat,dog\na,x,"1,200",5\n', "line 2: '1,200' of 'cat' has thousands separators or a decimal"),
        ("client,set,cat,cat\n", "two columns are named 'cat'"),
        ("client,set,cat,dog,\n", "column 5 has no name"),
        ("client,set,cat,dog\n", "names no set"),
        (GOOD + "north,mar,0.5\n", r"priors\.csv, line 5: 3 cells for 4 columns"),
        (GOOD + "north,mar,0.5,0.5,\n", "line 5: 5 cells for 4 columns"),
        (GOOD + "north,mar,half,0.5\n", "line 5: 'half' of 'cat' is not a number"),
        (GOOD + "north,mar,,1\n", "line 5: '' of 'cat' is not a number"),
        (GOOD + "north,mar,nan,1\n", "line 5: 'nan' of 'cat' is not a share"),
        (GOOD + "north,mar,-0.5,1.5\n", "line 5: '-0.5' of 'cat' is not a share"),
        (
            GOOD + "north,mar,20,80\n",
            "line 5: the shares of set 'mar' of client 'north' sum to 100, not to 1; proportions sum",
        ),
        (GOOD + "north,mar,0.5,0.6\n", "line 5: the shares of set 'mar' of client 'north' sum to 1.1"),
        (GOOD + "north,,0.5,0.5\n", "line 5: names no set; fill column 'set'"),
        (GOOD + "north, jan ,0.5,0.5\n", "line 5: set 'jan' of client 'north' occurs twice"),
        ("client,set,=cat,dog\na,x,0.5,0.5\n", "class '=cat' begins like a formula"),
        ("client,set,cat,dog,cat_low\na,x,0.5,0.5,0.1\n", "has only one of cat_low and cat_high"),
        ("client,set,cat,dog,cat_low,cat_high\na,x,0.5,0.5,0.6,0.7\n", "'cat' is not between its low and high"),
        (b"client,set,cat,dog\nnorth,jan,0.5,0.5\xff\n", "not a readable CSV file"),
        ('client,set,cat,dog\nnorth,"' + "x" * 200_000 + '",0.5,0.5\n', "not a readable CSV file"),
    ],
)
def test_a_table_that_is_wrong_is_refused_with_its_line(tmp_path: Path, content: str | bytes, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        read(tmp_path, content)


@pytest.mark.parametrize(
    ("unit", "shares", "complaint"),
    [
        ("proportions", "20,80", "a share of set 'x' of client 'a' is above 1; proportions are expected"),
        ("percentages", "0.2,0.8", "the shares of set 'x' of client 'a' sum to 1; percentages sum to 100"),
        ("counts", "0.2,0.8", "set 'x' of client 'a' has no counts; give whole numbers"),
        ("counts", "0,0", "has no counts"),
    ],
)
def test_what_is_said_of_the_unit_is_held_to(tmp_path: Path, unit: str, shares: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        read(tmp_path, f"client,set,cat,dog\na,x,{shares}\n", unit=unit)


def test_tables_of_a_folder_that_are_no_priors_are_refused_as_such(tmp_path: Path) -> None:
    (tmp_path / "patients.csv").write_text("age,cough\n1,2\n")
    with pytest.raises(InputError, match=r"is a folder, of which every table is read: .*patients\.csv: there is no"):
        read_priors(str(tmp_path))


def test_a_table_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.csv: there is no such file"):
        read_priors(str(tmp_path / "none.csv"))
    with pytest.raises(InputError, match="a folder without tables"):
        read_priors(str(tmp_path))


@pytest.mark.parametrize(
    ("head", "lines", "complaint"),
    [
        ("cat,dog,n", ["0.2,0.8,120", "0.5,0.5,80"], "column 'n' is not a class: .* sum to 1; .*--classes cat,dog, or"),
        ("cat,dog,beds", ["20,80,120", "50,50,30"], "column 'beds' is not a class: .* sum to 100; .*--classes cat,dog"),
        ("cat,dog,wards", ["20%,80%,12", "50%,50%,30"], "column 'wards' is not a class"),
        ("a,b,x,y", ["0.2,0.8,5,1.5", "0.5,0.5,7,2.5"], "columns 'x', 'y' are not classes: .*--classes a,b"),
        (
            "cat,dog,all",
            ["12,30,42", "7,9,16"],
            "column 'all' is the sum of the others, not a class; .*--classes cat,dog",
        ),
        ("cat,dog,beds", ["12,31,40", "7,9,33"], "column 'beds' looks like a size or a key, .*--classes cat,dog"),
        ("cat,n", ["12,31", "7,9"], "column 'n' looks like a size .*--classes cat,NAME, where NAME is the class"),
    ],
)
def test_a_column_of_numbers_beside_the_classes_is_named(
    tmp_path: Path, head: str, lines: list[str], complaint: str
) -> None:
    content = "\n".join([f"set,{head}", *(f"m{m},{line}" for m, line in enumerate(lines))])
    with pytest.raises(InputError, match=complaint):
        read(tmp_path, content)


def test_named_classes_are_read_in_their_order_and_other_columns_are_not(tmp_path: Path) -> None:
    table = read(tmp_path, "set,region,cat,dog,n\njan,west,20,80,120\nfeb,east,50,50,30\n", classes=("dog", "cat"))
    assert table.classes == ("dog", "cat")
    assert table.unit == "percentages"
    assert by_name(table)["", "jan"] == {"dog": 0.8, "cat": 0.2}


def test_counts_that_sum_to_a_hundred_in_a_part_are_counts_if_the_user_says_so(tmp_path: Path) -> None:
    content = "set,cat,dog,owl\njan,20,80,120\nfeb,50,50,30\n"
    with pytest.raises(InputError, match="use --priors-unit counts if these are counts"):
        read(tmp_path, content)
    assert read(tmp_path, content, unit="counts").clients[""]["jan"].cases == 220


@pytest.mark.parametrize(
    ("content", "classes", "unit", "expected"),
    [
        ("set,ill\njan,0.2\nfeb,0.55\n", (), "proportions", {"ill": 0.2, "not ill": 0.8}),
        ("set,ill\njan,20\nfeb,55.5\n", (), "percentages", {"ill": 0.2, "not ill": 0.8}),
        ("set,ill\njan,0.2%\nfeb,0.5%\n", (), "percentages", {"ill": 0.002, "not ill": 0.998}),
        ("set,ill,n\njan,0.2,70\nfeb,0.55,8\n", ("well", "ill"), "proportions", {"ill": 0.2, "well": 0.8}),
    ],
)
def test_one_class_column_leaves_the_rest_to_the_other_class(
    tmp_path: Path, content: str, classes: tuple[str, ...], unit: str, expected: dict[str, float]
) -> None:
    table = read(tmp_path, content, classes=classes)
    assert (table.unit, by_name(table)["", "jan"]) == (unit, expected)
    assert table.classes == (classes or tuple(expected))
    assert (
        f"one class column, 'ill', read as {unit}; class '{table.classes[1] if not classes else 'well'}'"
        in (table.notes[0])
    )


def test_the_other_class_is_as_uncertain_as_the_one_with_a_column(tmp_path: Path) -> None:
    alone = read(tmp_path, "set,ill,ill_low,ill_high\njan,0.2,0.1,0.3\n").clients[""]["jan"]
    assert alone.cases == pytest.approx(0.16 / (0.2 / (2 * 1.959964)) ** 2, rel=1e-3)


@pytest.mark.parametrize(
    ("content", "options", "complaint"),
    [
        ("set,ill\njan,120\n", {}, "line 2: 120 of 'ill' is above 100, so nothing is left for 'not ill'"),
        ("set,ill\njan,12\n", {"unit": "counts"}, "counts of 'ill' alone say nothing about 'not ill'"),
        ("set,ill\njan,12\n", {"classes": ("il", "wel")}, "no column for class 'il' of --classes: did you mean 'ill'?"),
        (
            "set,a,b\njan,1,0\n",
            {"classes": ("a", "b", "c")},
            "no column for class 'c' of --classes; the columns are a, b",
        ),
        ("set,a,b\njan,x,0\n", {}, "is not a number; .* name the columns of classes with --classes"),
    ],
)
def test_one_column_and_named_classes_have_their_limits(
    tmp_path: Path, content: str, options: dict[str, object], complaint: str
) -> None:
    with pytest.raises(InputError, match=complaint):
        read(tmp_path, content, **options)


def test_one_wrong_line_of_percentages_does_not_make_counts(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"line 3: .* sum to 63, not to 100"):
        read(tmp_path, "set,ill,well\njan,20,80\nfeb,43,20\nmar,55,45\n")
    assert read(tmp_path, "set,ill,well\njan,20,80\nfeb,43,20\nmar,55,41\n").unit == "counts"
