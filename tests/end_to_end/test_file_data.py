"""A table and its prevalences in, a classifier and predictions out, as a user types it."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from ..data_files import TRAIN_HOSPITALS, write_hospitals
from ..runs import contents
from .checks import refuses
from .command import Fedul, Outcome, Warm

ANEW = TRAIN_HOSPITALS.replace("--rounds 10 --out RUN", "--rounds 1 --out NEW")


@pytest.fixture
def files(trained_hospitals: Path) -> Path:
    return trained_hospitals


def column(path: Path, name: str) -> list[str]:
    with path.open(newline="") as file:
        return [row[name] for row in csv.DictReader(file)]


def error(folder: Path, predictions: str) -> float:
    right: NDArray[np.bool_] = np.array(column(folder / predictions, "class")) == column(folder / "truth.csv", "class")
    return float(1 - right.mean())


def test_a_table_and_its_prevalences_become_a_classifier_of_new_rows(
    fedul: Fedul, files: Path, hospitals: tuple[Path, Outcome]
) -> None:
    _, trained = hospitals
    assert trained.code == 0, trained.err
    assert "trained on 750 rows of 2 clients" in trained.out
    assert fedul("predict RUN new.csv --out even.csv").code == 0
    assert fedul("predict RUN new.csv --out told.csv --prior flu=0.1,cold=0.9").code == 0
    guessed = fedul("predict RUN new.csv --out guessed.csv --estimate-prior --json")
    assert error(files, "even.csv") < 0.2
    mix = guessed.document["prior"]
    assert abs(mix["flu"]["share"] - 0.1) < 0.03
    assert mix["flu"]["low"] < mix["flu"]["share"] < mix["flu"]["high"]
    assert error(files, "told.csv") <= error(files, "even.csv")
    assert error(files, "guessed.csv") <= error(files, "even.csv")


def test_predictions_are_the_same_as_csv_and_as_parquet_and_in_the_order_of_the_rows(fedul: Fedul, files: Path) -> None:
    document = fedul("predict RUN new.csv --json").document
    for name in ("out.csv", "out.parquet"):
        assert fedul(f"predict RUN new.csv --out {name}").code == 0
    table = pq.read_table(files / "out.parquet")
    assert table.column_names == ["class", "p(flu)", "p(cold)"]
    assert table.column("class").to_pylist() == column(files / "out.csv", "class") == document["class"]
    np.testing.assert_allclose(table.column("p(flu)"), [row[0] for row in document["probabilities"]], rtol=1e-6)


def test_a_run_on_a_table_can_be_resumed_and_another_table_is_refused(
    fedul: Fedul, warm: Warm, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    write_hospitals(tmp_path)
    assert fedul(f"{TRAIN_HOSPITALS} --rounds 2").code == 0
    elsewhere = warm.run(f"train --out {tmp_path}/RUN --resume --rounds 3", tmp_path_factory.mktemp("elsewhere"))
    assert elsewhere.code == 0
    with (tmp_path / "patients.csv").open("a") as file:
        file.write("North,m0,39.9,2.0,yes,A,flu\n")
    refuses(fedul, tmp_path, "train --out RUN --resume --rounds 4", "RUN: holds a different run (")


def test_notes_about_the_data_are_printed_before_training(fedul: Fedul, files: Path) -> None:
    outcome = fedul(ANEW.replace("--truth-column truth ", ""))
    assert "note: column 'truth' holds the class names and is left out" in outcome.err


@pytest.mark.parametrize(
    ("file", "old", "new", "line", "complaint"),
    [
        ("patients.csv", "North,m0", "North,m9", ANEW, "has no priors for set 'm9' of client 'North'"),
        ("prevalence.csv", "North,m0", "North,m9", ANEW, "has priors for set 'm9' of client 'North', of which"),
        ("patients.csv", "temperature", "days", ANEW, "two columns are named 'days'"),
        ("patients.csv", "hospital,month", "hospital;month", ANEW, "there is no column 'hospital'"),
        ("prevalence.csv", "flu,", "=1+1,", ANEW, "class '=1+1' begins like a formula"),
        ("new.csv", "temperature", "temp", "predict RUN new.csv --out x.csv", "did you mean 'temp'?"),
        ("new.csv", ",no,", ",perhaps,", "predict RUN new.csv --out x.csv", "where yes or no is expected"),
        ("new.csv", "", "", "predict RUN new.csv --out x.xlsx", "name a file that ends in .csv or .parquet"),
        ("new.csv", "", "", "predict RUN new.csv --out x", "name a file that ends in .csv or .parquet"),
    ],
)
def test_input_that_is_broken_is_refused_and_nothing_is_written(
    fedul: Fedul, files: Path, file: str, old: str, new: str, line: str, complaint: str
) -> None:
    text = (files / file).read_text()
    assert old in text
    (files / file).write_text(text.replace(old, new, 1))
    refuses(fedul, files, line, complaint)


def test_points_for_thousands_in_new_rows_are_refused(fedul: Fedul, files: Path) -> None:
    (files / "new.csv").write_text("temperature;days;cough;ward\n38,5;1.200;no;A\n38,1;3;no;A\n")
    refuses(fedul, files, "predict RUN new.csv --out x.csv", "new.csv, line 2: column 'days': '1.200' may be a number")


def test_a_warning_names_words_that_were_not_in_training_and_their_number_of_rows(fedul: Fedul, files: Path) -> None:
    (files / "new.csv").write_text("temperature,days,cough,ward\n38.5,1,no,C\n")
    outcome = fedul("predict RUN new.csv --out x.csv")
    assert "column 'ward': 1 row has a value that did not occur in training" in outcome.err
    assert "1 row classified" in outcome.out


def test_a_run_that_lost_its_configuration_is_not_evaluated(fedul: Fedul, files: Path) -> None:
    (files / "RUN/config.json").unlink()
    refuses(fedul, files, "evaluate RUN", "RUN: no run in it; give the folder of a run")


def test_a_table_of_predictions_is_not_written_over_the_rows(fedul: Fedul, files: Path) -> None:
    before = contents(files)
    refuses(fedul, files, "predict RUN new.csv --out new.csv", "is the file with the rows")
    refuses(fedul, files, "predict RUN new.csv --prior uniform --estimate-prior", "give one of the two")
    assert contents(files) == before


CHECK = "check --data patients.csv --priors prevalence.csv --client-column hospital --set-column month"


def test_check_says_whether_the_data_is_enough(fedul: Fedul, files: Path) -> None:
    document = fedul(f"{CHECK} --truth-column truth --json").document
    assert document["identifiable"] is True
    assert all(isinstance(sentence, str) for sentence in document["advice"])
    assert document["warnings"] == []
    for client in document["clients"]:
        assert client.keys() >= {"client", "rows", "sets", "rank", "condition", "information"}
    shown = fedul(CHECK)
    assert shown.code == 0
    assert "Enough" in shown.out
    assert "column 'truth' holds the class names" in shown.out
    assert shown.err == ""


def test_check_says_what_is_missing_where_it_is_not_enough(fedul: Fedul, files: Path) -> None:
    header, *lines = (files / "prevalence.csv").read_text().splitlines()
    alike = [f"{line.rsplit(',', 2)[0]},0.5,0.5" for line in lines]
    (files / "prevalence.csv").write_text("\n".join([header, *alike]))
    document = fedul(f"{CHECK} --json").document
    assert document["identifiable"] is False
    assert document["verdict"] == "not enough"
    assert document["advice"]
