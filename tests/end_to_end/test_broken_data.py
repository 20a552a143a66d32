"""Broken tables, priors and images of a user: each is refused in one sentence, and nothing is written."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from PIL import Image

import fedul as package
from fedul.core import Study
from fedul.errors import InputError

from ..data_files import write_slice
from .checks import refuses
from .command import Fedul

TRAIN = "train --data t.csv --priors p.csv --client-column site --set-column month --rounds 1 --out RUN"
ROWS = "".join(f"{'NS'[i % 2]},{'ab'[i // 2 % 2]},{i / 7:.2f},{'xyz'[i % 3]}\n" for i in range(40))
TABLE = f"site,month,age,town\n{ROWS}"
PRIORS = "site,month,flu,cold\nN,a,0.2,0.8\nN,b,0.7,0.3\nS,a,0.4,0.6\nS,b,0.9,0.1\n"


ALIKE = "site,month,flu,cold\nN,a,0.5,0.5\nN,b,0.5,0.5\nS,a,0.5,0.5\nS,b,0.5,0.5\n"
CONSTANT = "site,month,age\nN,a,1\nN,b,1\nS,a,1\nS,b,1\n"


def table(change: Callable[[str], str | bytes]) -> Callable[[Path], None]:
    return lambda folder: _write(folder / "t.csv", change(TABLE))


def priors(change: Callable[[str], str | bytes]) -> Callable[[Path], None]:
    return lambda folder: _write(folder / "p.csv", change(PRIORS))


def _write(path: Path, content: str | bytes) -> None:
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def swapped(old: str, new: str) -> Callable[[str], str]:
    return lambda text: text.replace(old, new, 1)


def bomb(_: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("t.csv", "0" * 50_000_000)
    return packed.getvalue()


def keys_alone(text: str) -> str:
    return "\n".join(",".join(line.split(",")[:2]) for line in text.split("\n"))


def with_absent_class(text: str) -> str:
    return "site,month,flu,cold,rash\n" + "".join(f"{line},0\n" for line in text.split("\n")[1:5])


def half_an_interval(text: str) -> str:
    return text.replace("cold", "cold,flu_low", 1).replace("0.2,0.8", "0.2,0.8,0.1")


def with_semicolons(amount: str, other: str = "1,5") -> Callable[[str], str]:
    def changed(text: str) -> str:
        header, *lines = text.strip().split("\n")
        made = [
            f"{line.replace(',', ';').replace('.', ',')};{amount.replace('N', str(i))};{other}"
            for i, line in enumerate(lines, 10)
        ]
        return "\n".join([f"{header.replace(',', ';')};amount;rate", *made])

    return changed


def gone(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


BROKEN = [
    ("no table", gone("t.csv"), "t.csv: there is no such file"),
    ("no priors", gone("p.csv"), "p.csv: there is no such file"),
    ("empty table", table(lambda _: ""), "t.csv: is empty"),
    ("empty priors", priors(lambda _: ""), "p.csv: is empty"),
    ("header alone", table(lambda text: text.split("\n", 1)[0]), "holds no rows"),
    ("priors without a line", priors(lambda text: text.split("\n", 1)[0]), "names no set"),
    ("Latin-1", table(lambda text: text.replace("x", "\xe9").encode("latin-1")), "is not UTF-8 text"),
    ("Latin-1 header", table(lambda text: text.replace("town", "\xe9t\xe9").encode("latin-1")), "is not UTF-8 text"),
    ("UTF-16", table(lambda text: text.encode("utf-16")), "is UTF-16 text"),
    ("zeros", table(lambda text: text.encode() + b"\0\0\0"), "is not text"),
    ("random bytes", table(lambda _: bytes(range(256))), "is not text"),
    ("zip bomb", table(bomb), "is a zip archive or an Excel file"),
    ("gzip", table(lambda _: b"\x1f\x8b\x08\0\0"), "is compressed"),
    ("image as table", table(lambda _: b"\x89PNG\r\n\x1a\n"), "is an image"),
    ("PDF", table(lambda _: b"%PDF-1.7\n"), "is a PDF"),
    ("duplicate header", table(swapped("age", "town")), "two columns are named 'town'"),
    ("nameless column", table(swapped("age", "")), "column 3 has no name"),
    ("too many cells", table(swapped("N,a,", "N,a,1,")), "5 cells for 4 columns"),
    ("too few cells", table(swapped("N,a,0.00,x", "N,a")), "2 cells for 4 columns"),
    ("another separator", table(swapped("site,month,age,town", "site;month;age;town")), "1 cell for 4 columns"),
    ("no client column", table(swapped("site", "clinic")), "there is no column 'site'"),
    ("no set column", table(swapped("month", "week")), "there is no column 'month'"),
    ("row without a client", table(swapped("\nN,", "\n,")), "line 2: names no client"),
    ("row without a set", table(swapped("\nN,a,", "\nN,,")), "line 2: names no set"),
    ("set without priors", table(swapped("\nN,a,", "\nN,c,")), "has no priors for set 'c' of client 'N'"),
    ("client without priors", table(swapped("\nN,a,", "\nE,a,")), "has no priors for client 'E'"),
    (
        "priors without a set",
        priors(lambda text: text + "N,c,0.5,0.5\n"),
        "has priors for set 'c' of client 'N', of which",
    ),
    ("priors without a client", priors(lambda text: text + "E,a,0.5,0.5\n"), "has priors for client 'E', of which"),
    ("text in numbers", table(swapped("0.14", "O.14")), "t.csv, line 3: column 'age': 'O.14' is not a number"),
    ("infinity", table(swapped("0.14", "inf")), "t.csv, line 3: column 'age': has an infinite or huge"),
    (
        "thousands",
        table(with_semicolons("N.960,97")),
        "column 'amount': '10.960,97' looks like a number with thousands",
    ),
    (
        "points for thousands",
        table(with_semicolons("N.960")),
        "line 2: column 'amount': '10.960' may be a number with a",
    ),
    ("English thousands", table(swapped("0.14", '"14,960.97"')), "column 'age': '14,960.97' looks like a number with"),
    (
        "decimal comma",
        table(swapped("0.14", '"0,14"')),
        "column 'age': '0,14' looks like a number with a decimal comma",
    ),
    ("misspelt column", table(swapped("month", "months")), "no column 'month': did you mean 'months'?"),
    ("beyond all numbers", table(swapped("0.14", "1e999")), "infinite or huge"),
    ("beyond all squares", table(swapped("0.14", "1e308")), "huge"),
    ("no feature", table(keys_alone), "no column can be"),
    ("constant features", table(lambda _: CONSTANT), "no column can be used"),
    ("shares above one", priors(swapped("0.2,0.8", "0.4,0.8")), "sum to 1.2"),
    ("shares and percentages", priors(swapped("0.2,0.8", "20,80")), "sum to 100, not to 1; proportions sum to 1"),
    ("negative share", priors(swapped("0.2,0.8", "-0.2,1.2")), "'-0.2' of 'flu' is not a share"),
    ("missing share", priors(swapped("0.2,0.8", ",0.8")), "'' of 'flu' is not a number"),
    ("NaN share", priors(swapped("0.2,0.8", "nan,0.8")), "'nan' of 'flu' is not a share"),
    ("words for shares", priors(swapped("0.2,0.8", "few,many")), "'few' of 'flu' is not a number"),
    ("the same set twice", priors(lambda text: text + "N,a,0.2,0.8\n"), "set 'a' of client 'N' occurs twice"),
    ("nameless set", priors(swapped("N,a,", "N,,")), "names no set"),
    ("no class", priors(lambda _: "site,month\nN,a\n"), "names no class;"),
    ("class of no set", priors(with_absent_class), "class 'rash' has prior 0 in every set"),
    ("sets all alike", priors(lambda _: ALIKE), "cannot tell the classes apart"),
    ("formula as class", priors(swapped("flu", "=HYPERLINK(1)")), "begins like a formula"),
    ("half an interval", priors(half_an_interval), "has only one of flu_low and flu_high"),
    ("unfinished quote", table(swapped("N,a,", '"N,a,')), "t.csv"),
]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    _write(tmp_path / "t.csv", TABLE)
    _write(tmp_path / "p.csv", PRIORS)
    return tmp_path


@pytest.mark.parametrize(("make", "complaint"), [pytest.param(*case[1:], id=case[0]) for case in BROKEN])
def test_a_broken_table_is_refused(fedul: Fedul, files: Path, make: Callable[[Path], None], complaint: str) -> None:
    make(files)
    refuses(fedul, files, TRAIN, complaint)


def test_a_parquet_file_that_is_cut_is_refused(fedul: Fedul, files: Path) -> None:
    pq.write_table(pa.table({"site": ["N"] * 500, "month": ["a"] * 500, "age": list(range(500))}), files / "t.parquet")
    whole = (files / "t.parquet").read_bytes()
    (files / "t.parquet").write_bytes(whole[: len(whole) * 9 // 10])
    refuses(fedul, files, TRAIN.replace("t.csv", "t.parquet"), "t.parquet: not a complete Parquet file")


def pictures(folder: Path) -> None:
    noise = np.random.default_rng(0)
    for name in ("N/a", "N/b"):
        (folder / "images" / name).mkdir(parents=True)
        for number in range(3):
            pixels = noise.integers(0, 255, (8, 8), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / f"images/{name}/{number}.png")
    _write(folder / "p.csv", "client,set,flu,cold\nN,a,0.2,0.8\nN,b,0.7,0.3\n")


def no_pixels(path: Path) -> None:
    write_slice(path, np.zeros((4, 4)))
    path.write_bytes(path.read_bytes()[:-40])


def stranger(images: Path) -> None:
    (images / "E/a").mkdir(parents=True)
    Image.new("L", (8, 8)).save(images / "E/a/x.png")


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        pytest.param(
            lambda at: (at / "N/a/empty.png").write_bytes(b""), "empty.png: not a complete image", id="zero bytes"
        ),
        pytest.param(lambda at: (at / "N/a/x.jpg").write_bytes(b"text"), "x.jpg: not a complete image", id="text"),
        pytest.param(
            lambda at: no_pixels(at / "N/a/x.dcm"), "x.dcm: not a complete DICOM image", id="DICOM without pixels"
        ),
        pytest.param(lambda at: Image.new("L", (9, 8)).save(at / "N/a/x.png"), "resize them", id="sizes"),
        pytest.param(stranger, "has no priors for client 'E'", id="strange client"),
        pytest.param(
            lambda at: [p.unlink() for p in at.rglob("*.png")], "there are no images below it", id="no images"
        ),
    ],
)
def test_broken_images_are_refused(
    fedul: Fedul, tmp_path: Path, make: Callable[[Path], object], complaint: str
) -> None:
    pictures(tmp_path)
    make(tmp_path / "images")
    refuses(fedul, tmp_path, "train --data images --priors p.csv --rounds 1 --out RUN", complaint)


def test_client_names_that_look_like_paths_write_nothing_elsewhere(fedul: Fedul, files: Path) -> None:
    for name in ("t.csv", "p.csv"):
        text = (files / name).read_text()
        _write(files / name, text.replace("\nN,", "\n../../N\x07,").replace("\nS,", "\n/etc/passwd,"))
    outside = sorted(path.name for path in files.parent.iterdir())
    assert fedul(f"{TRAIN} --algorithm scaffold --model linear").code == 0
    assert sorted(path.name for path in files.parent.iterdir()) == outside
    assert sorted(path.name for path in files.iterdir()) == ["RUN", "p.csv", "t.csv"]


def loaded_or_refused(folder: Path) -> Study | str:
    """Return the study of the files in a folder, or the sentence that refuses them."""
    try:
        return package.load(
            str(folder / "t.csv"), priors=str(folder / "p.csv"), client_column="site", set_column="month"
        )
    except InputError as problem:
        return str(problem)


@settings(derandomize=True, database=None, deadline=None, max_examples=40)
@given(st.sampled_from(["t.csv", "p.csv"]), st.integers(0, 400), st.binary(max_size=6), st.integers(0, 30))
def test_files_with_random_changes_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, name: str, place: int, put: bytes, cut: int
) -> None:
    folder = tmp_path_factory.mktemp("mutated")
    contents = {"t.csv": TABLE.encode(), "p.csv": PRIORS.encode()}
    contents[name] = contents[name][:place] + put + contents[name][place + cut :]
    for each, content in contents.items():
        _write(folder / each, content)
    found = loaded_or_refused(folder)
    if isinstance(found, str):
        assert "t.csv" in found or "p.csv" in found
        assert found.endswith(".")
        assert "\n" not in found
        return
    clients = found.federation.clients
    rows = sum(len(client.train) + len(client.held_out) for client in clients)
    assert 0 < rows <= contents["t.csv"].count(b"\n") + contents["t.csv"].count(b"\r")
    for client in clients:
        assert bool(client.inputs.isfinite().all())
        assert_allclose(client.priors.sum(axis=1), 1, atol=1e-6)
