"""`fedul predict` on tables as users have them: with identifiers, an index, from a pipe, over existing files."""

from __future__ import annotations

import csv
import io
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fedul as library

from .checks import leftovers, refuses
from .command import Fedul, Outcome, Warm

ROWS = """\
id,temperature,days,cough,ward,name
007,39.4,1.2,yes,A,NA
008,36.8,6.0,no,B,"Smith, J."
009,,4.0,no,A,
"""


@pytest.fixture
def folder(trained_hospitals: Path) -> Path:
    (trained_hospitals / "rows.csv").write_text(ROWS)
    return trained_hospitals


@pytest.fixture
def fedul(warm: Warm, folder: Path) -> Fedul:
    return partial(warm.run, at=folder)


def cells(outcome: Outcome) -> list[list[str]]:
    assert outcome.code == 0, outcome.err
    return list(csv.reader(io.StringIO(outcome.out)))


def test_columns_to_keep_come_first_and_as_they_are_written(fedul: Fedul) -> None:
    header, *rows = cells(fedul("predict RUN rows.csv --keep id,name"))
    assert header == ["id", "name", "class", "p(flu)", "p(cold)"]
    assert [row[:2] for row in rows] == [["007", "NA"], ["008", "Smith, J."], ["009", ""]]
    document = fedul("predict RUN rows.csv --keep id --json").document
    assert document["keep"] == {"id": ["007", "008", "009"]}
    assert document["rows"] == 3


def test_a_feature_can_be_kept_too(fedul: Fedul) -> None:
    plain = cells(fedul("predict RUN rows.csv --keep id"))
    rows = cells(fedul("predict RUN rows.csv --keep temperature"))
    assert [row[0] for row in rows] == ["temperature", "39.4", "36.8", ""]
    assert [row[1:] for row in rows] == [row[1:] for row in plain]


def test_kept_columns_of_parquet_have_their_type(fedul: Fedul, folder: Path) -> None:
    features = {"temperature": [39.4, 36.8], "days": [1.2, 6.0], "cough": ["yes", "no"], "ward": ["A", "B"]}
    pq.write_table(pa.table({"id": [7, 8], **features}), folder / "rows.parquet")
    assert fedul("predict RUN rows.parquet --keep id --out p.parquet").code == 0
    stored = pq.read_table(folder / "p.parquet")
    assert stored.schema.field("id").type == pa.int64()
    assert stored.column("id").to_pylist() == [7, 8]


@pytest.mark.parametrize(
    ("keep", "complaint"),
    [
        ("idd", "rows.csv: there is no column 'idd': did you mean 'id'?"),
        ("id,id", "keep: 'id' is given twice"),
        ("class", "keep: 'class' is also a column of the predictions"),
    ],
)
def test_columns_that_cannot_be_kept_are_refused(fedul: Fedul, folder: Path, keep: str, complaint: str) -> None:
    refuses(fedul, folder, f"predict RUN rows.csv --keep {keep} --out p.csv", complaint)


def test_ignored_columns_are_named_and_kept_ones_are_not(fedul: Fedul) -> None:
    outcome = fedul("predict RUN rows.csv --keep id --json")
    assert outcome.err == "note: ignored a column that the classifier does not use: 'name'\n"
    assert outcome.document["ignored_columns"] == ["name"]
    assert fedul("predict RUN rows.csv --keep id,name").err == ""


def test_an_unnamed_index_is_ignored_with_a_note(fedul: Fedul, folder: Path) -> None:
    lines = ROWS.splitlines()
    indexed = [f"{'' if n == 0 else n - 1},{line}" for n, line in enumerate(lines)]
    (folder / "indexed.csv").write_text("\n".join(indexed) + "\n")
    outcome = fedul("predict RUN indexed.csv --keep id")
    assert cells(outcome) == cells(fedul("predict RUN rows.csv --keep id"))
    assert "'name', and the first one, which has no name" in outcome.err


def test_rows_are_read_from_standard_input(fedul: Fedul, folder: Path) -> None:
    expected = cells(fedul("predict RUN rows.csv --keep id"))
    assert cells(fedul("predict RUN - --keep id", stdin=folder / "rows.csv")) == expected
    (folder / "semicolons.csv").write_text(ROWS.replace('"Smith, J."', "Smith").replace(",", ";"))
    assert cells(fedul("predict RUN - --keep id", stdin=folder / "semicolons.csv")) == expected


def test_parquet_is_read_from_standard_input(fedul: Fedul, folder: Path) -> None:
    features = {"temperature": [39.4], "days": [1.2], "cough": ["yes"], "ward": ["A"]}
    pq.write_table(pa.table(features), folder / "rows.parquet")
    piped = fedul("predict RUN -", stdin=folder / "rows.parquet")
    assert cells(piped) == cells(fedul("predict RUN rows.parquet"))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "standard input: is empty; give a table"),
        ("a,b\n1,2\n", "standard input: there is no column 'temperature'"),
        (ROWS.replace("39.4", "hot"), "standard input, line 2"),
    ],
)
def test_messages_about_standard_input_name_it(fedul: Fedul, folder: Path, text: str, complaint: str) -> None:
    (folder / "piped.csv").write_text(text)
    refuses(partial(fedul, stdin=folder / "piped.csv"), folder, "predict RUN -", complaint)


def test_prediction_sets_are_a_column_and_in_the_document(fedul: Fedul, folder: Path) -> None:
    header, *rows = cells(fedul("predict RUN rows.csv --keep id --coverage 0.9"))
    assert header == ["id", "class", "set(0.9)", "p(flu)", "p(cold)"]
    for _, name, names, flu, cold in rows:
        assert names.split("|")[0] == name
        assert len(names.split("|")) <= (1 if max(float(flu), float(cold)) >= 0.9 else 2)
    document = fedul("predict RUN rows.csv --coverage 0.9 --json").document
    assert document["coverage"] == 0.9
    assert ["|".join(names) for names in document["sets"]] == [row[2] for row in rows]
    classifier = library.Classifier.load(folder / "RUN/model")
    assert [list(names) for names in classifier.predict_set(folder / "rows.csv", coverage=0.9)] == document["sets"]


def test_everything_is_in_every_prediction_set_of_coverage_1(fedul: Fedul) -> None:
    assert all(len(names) == 2 for names in fedul("predict RUN rows.csv --coverage 1 --json").document["sets"])


@pytest.mark.parametrize("coverage", ["0", "1.5", "-1", "nan"])
def test_a_coverage_that_is_no_probability_is_refused(fedul: Fedul, folder: Path, coverage: str) -> None:
    refuses(fedul, folder, f"predict RUN rows.csv --coverage {coverage}", "coverage: must be above 0 and at most 1")


def test_earlier_predictions_are_replaced_and_other_files_are_not(fedul: Fedul, folder: Path) -> None:
    assert fedul("predict RUN rows.csv --out p.csv").code == 0
    assert fedul("predict RUN rows.csv --out p.csv --keep id").code == 0
    assert (folder / "p.csv").read_text().startswith('"id"')
    (folder / "mine.csv").write_text("a,b\n1,2\n")
    refuses(fedul, folder, "predict RUN rows.csv --out mine.csv", "mine.csv: exists and holds no predictions")
    assert fedul("predict RUN rows.csv --out mine.csv --force").code == 0
    assert leftovers(folder) == []


@pytest.mark.parametrize("file", ["rows.csv", "patients.csv", "prevalence.csv", "./RUN/../rows.csv"])
def test_rows_and_training_data_are_never_replaced(fedul: Fedul, folder: Path, file: str) -> None:
    refuses(fedul, folder, f"predict RUN rows.csv --out {file} --force", "choose another --out")


def test_predictions_are_not_written_among_the_rows_of_a_folder(fedul: Fedul, folder: Path) -> None:
    (folder / "new").mkdir()
    (folder / "new/rows.csv").write_text(ROWS)
    refuses(fedul, folder, "predict RUN new --out new/p.csv", "is read with them")
    refuses(fedul, folder, "predict RUN 'new/*.csv' --out new/p.csv", "is read with them")
    assert fedul("predict RUN new --out p.csv").code == 0


def test_a_count_of_one_is_singular(fedul: Fedul, folder: Path) -> None:
    (folder / "one.csv").write_text("\n".join(ROWS.splitlines()[:2]) + "\n")
    assert "1 row classified" in fedul("predict RUN one.csv --out p.csv").out
