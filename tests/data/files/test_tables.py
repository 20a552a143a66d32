"""Tables are read block by block; what is no table is refused in a sentence that says what it is."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedul.data.files import tables
from fedul.data.files.tables import open_table, table_paths
from fedul.data.files.thousands import check_thousands_points
from fedul.errors import InputError


def rows_of(file: Path, columns: list[str] | None = None) -> list[dict[str, object]]:
    return [row for block in open_table(file).blocks(columns) for row in block.to_pylist()]


@pytest.mark.parametrize(
    "content",
    [
        "a,b\n1,x\n2,\n",
        "\ufeffa,b\r\n1,x\r\n2,NA\r\n",
        "a;b\n1;x\n2;\n",
        "a\tb\n1\tx\n2\tnull\n",
        "a|b\n1|x\n2|?\n",
        '"a","b"\n"1","x"\n"2",""\n',
        " a , b \n1,x\n2,\n",
        "a,b\n1,x\n\n2,\n",
        "a,b\n1,x\n2,",
    ],
)
def test_the_same_rows_are_read_however_they_are_written(tmp_path: Path, content: str) -> None:
    (tmp_path / "t.csv").write_bytes(content.encode())
    assert rows_of(tmp_path / "t.csv") == [{"a": "1", "b": "x"}, {"a": "2", "b": None}]


def test_decimal_commas_go_with_semicolons(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a;b\n1,5;x,y\n-0,25;1\n,5;2\n")
    assert rows_of(tmp_path / "t.csv") == [{"a": "1.5", "b": "x,y"}, {"a": "-0.25", "b": "1"}, {"a": ".5", "b": "2"}]


@pytest.mark.parametrize(
    ("content", "refused"),
    [
        ("a;b\n14.960;1,5\n999;2\n", True),
        ("a;b\n1,5;x\n14.960;y\n", True),
        ("a;b\n999;1,5\n14.960;2\n0.5;3\n", False),
        ("a;b\n14.960;1.5\n999;2\n", False),
        ("a;b\nred;1,5\nblue;2\n14.960;2\n", False),
        ("a,b\n14.960,1\n999,2\n", False),
    ],
    ids=["elsewhere", "in the column", "points are decimal", "no decimal commas", "words", "commas"],
)
def test_points_that_may_stand_for_thousands_beside_decimal_commas_are_refused(
    tmp_path: Path, content: str, refused: bool
) -> None:
    (tmp_path / "t.csv").write_text(content)
    complaint = pytest.raises(
        InputError, match=r"t\.csv, line \d: column 'a': '14\.960' may be a number with a thousands"
    )
    with complaint if refused else nullcontext():
        check_thousands_points(open_table(tmp_path / "t.csv"), ["a"])


def test_rows_come_in_order_however_many_blocks_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "BLOCK_BYTES", 1000)
    (tmp_path / "t.csv").write_text("a,b\n" + "".join(f'{i},"x\n{i}"\n' for i in range(3000)))
    assert len(list(open_table(tmp_path / "t.csv").blocks())) > 5
    assert [row["a"] for row in rows_of(tmp_path / "t.csv", ["a"])] == [str(i) for i in range(3000)]


def test_parquet_keeps_its_types(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1, 2], "b": ["x", None]}), tmp_path / "t.parquet")
    assert rows_of(tmp_path / "t.parquet") == [{"a": 1, "b": "x"}, {"a": 2, "b": None}]


def zipped(path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("t.csv", "0" * 10_000_000)


def cut_parquet(path: Path) -> None:
    pq.write_table(pa.table({"a": list(range(1000))}), path)
    path.write_bytes(path.read_bytes()[:-200])


@pytest.mark.parametrize(
    ("name", "make", "complaint"),
    [
        ("t.csv", b"", "is empty"),
        ("t.csv", b"a,b\n1,2,3\n", r"line 2: 3 cells for 2 columns; correct the line \('1,2,3'\)"),
        ("t.csv", b"a,b\n1\n", "line 2: 1 cell for 2 columns"),
        ("t.csv", b"a,a\n1,2\n", "two columns are named 'a'"),
        ("t.csv", b"a,,b\n1,2,3\n", "column 2 has no name"),
        ("t.csv", "a,ü\n1,2\n".encode("latin-1"), "is not UTF-8 text"),
        ("t.csv", "a,b\n1,ü\n".encode("latin-1"), "is not UTF-8 text"),
        ("t.csv", "a,b\n1,2\n".encode("utf-16"), "is UTF-16 text, not a CSV file"),
        ("t.csv", b"a,b\n\0\0,2\n", "is not text"),
        ("t.csv", zipped, "is a zip archive or an Excel file, not a CSV file"),
        ("t.csv", b"\x1f\x8b\x08\0junk", "is compressed, not a CSV file"),
        ("t.csv", cut_parquet, "is a Parquet file, not a CSV file"),
        ("t.parquet", cut_parquet, "not a complete Parquet file"),
        ("t.parquet", b"a,b\n1,2\n", "not a complete Parquet file"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path: Path, name: str, make: object, complaint: str) -> None:
    file = tmp_path / name
    make(file) if callable(make) else file.write_bytes(make)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=rf"{name}.*{complaint}"):
        rows_of(file)


def test_a_column_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="there is no column 'c'; it has a, b"):
        rows_of(tmp_path / "t.csv", ["c"])
    (tmp_path / "t.csv").write_text("temperature,b\n1,2\n")
    with pytest.raises(InputError, match="no column 'temprature': did you mean 'temperature'\\? It has temperature, b"):
        rows_of(tmp_path / "t.csv", ["temprature"])


def test_a_user_may_name_a_file_a_folder_or_a_pattern(tmp_path: Path) -> None:
    for name in ("b.csv", "a.parquet", "notes.md", ".hidden"):
        (tmp_path / name).write_text("x")
    assert [path.name for path in table_paths(str(tmp_path))] == ["a.parquet", "b.csv"]
    assert [path.name for path in table_paths(f"{tmp_path}/*.csv")] == ["b.csv"]
    with pytest.raises(InputError, match="no file matches this pattern"):
        table_paths(f"{tmp_path}/*.tsv")
    with pytest.raises(InputError, match="there is no such file"):
        table_paths(str(tmp_path / "c.csv"))


def test_a_row_is_named_by_its_line_as_an_editor_counts_them(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text('a,b\n1,2\n\n3,"x\ny"\n5,6\n')
    places = [open_table(file).describe_row(number).removeprefix(str(file)) for number in range(3)]
    assert places == [", line 2", ", line 5", ", line 6"]
    (batch,) = open_table(file).blocks()
    assert batch.column("a").to_pylist() == ["1", "3", "5"]


def test_a_list_of_columns_says_how_many_are_left_out(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text(",".join(f"c{number}" for number in range(15)) + "\n")
    with pytest.raises(InputError, match=r"it has c0, .*, c11 and 3 more"):
        open_table(file).check_has(["zebra"])
