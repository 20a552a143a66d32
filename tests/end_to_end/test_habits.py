"""Small defects that new users found, typed as they typed them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..data_files import TRAIN_HOSPITALS, write_hospitals
from .checks import is_one_sentence, refuses
from .command import Fedul


def test_a_learning_rate_that_diverges_delivers_nothing(fedul: Fedul, tmp_path: Path) -> None:
    outcome = fedul("train --method fedul --clients 2 --rounds 2 --learning-rate 1000 --out RUN")
    assert (outcome.code, outcome.out) == (1, "")
    assert is_one_sentence(outcome.err)
    assert "diverged" in outcome.err
    assert "use a smaller learning rate than 1000 (--learning-rate)" in outcome.err
    assert not (tmp_path / "RUN/model").exists()
    refuses(fedul, tmp_path, "predict RUN rows.npy", "no classifier in it")


def test_a_classifier_that_is_worse_than_nothing_is_said(fedul: Fedul, tmp_path: Path) -> None:
    write_hospitals(tmp_path)
    outcome = fedul(TRAIN_HOSPITALS + " --method fedul --learning-rate 1")
    assert "note: the classifier is worse than one that says nothing: the held-out loss is" in outcome.err


@pytest.mark.parametrize("classes", ["a,,b", "a,b,", ",a,b", " ,"])
def test_an_empty_name_of_a_class_is_refused(fedul: Fedul, tmp_path: Path, classes: str) -> None:
    refuses(fedul, tmp_path, f"federation new F --classes '{classes}'", "classes: expected names of classes, none of")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("train --l2 -1", "l2: must be at least 0, got -1; change it, or leave it out."),
        ("train --split x", "split: 'x' is not one of iid, noniid, noniid-text; choose one of these."),
        ("check --data empty.csv --priors p.csv", "empty.csv: is empty; give a table with a header and rows."),
        ("check --data none.csv --priors p.csv", "none.csv: there is no such file; correct the path."),
        ("train --config none.toml", "none.toml: there is no such file; --config takes a TOML file."),
    ],
)
def test_an_error_says_what_to_do(fedul: Fedul, tmp_path: Path, line: str, sentence: str) -> None:
    (tmp_path / "empty.csv").touch()
    refuses(fedul, tmp_path, line, sentence)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a place that takes no files")
def test_a_place_that_takes_no_files_is_named(fedul: Fedul) -> None:
    outcome = fedul("train --out /proc/x --rounds 1")
    expected = "fedul: /proc/x: cannot be created (this place takes no new files); choose another --out.\n"
    assert (outcome.code, outcome.err) == (2, expected)


def test_another_run_in_the_folder_is_named_by_its_data_first(fedul: Fedul, tmp_path: Path) -> None:
    write_hospitals(tmp_path)
    assert fedul(TRAIN_HOSPITALS.replace("--rounds 10", "--rounds 1 --method fedul")).code == 0
    refuses(
        fedul, tmp_path, "train --out RUN", f"RUN: holds a different run (data is {tmp_path}/patients.csv there, digits"
    )
    again = TRAIN_HOSPITALS.replace("--rounds 10", "--rounds 2 --method fedul")
    refuses(fedul, tmp_path, again, "RUN: already holds a run with these settings; add --resume to continue it")


@pytest.mark.parametrize("line", ["datasets", "compare --methods fedul,soft-labels --seeds 2 --rounds 1 --clients 2"])
def test_tables_are_whole_at_60_columns(fresh_fedul: Fedul, line: str) -> None:
    outcome = fresh_fedul(line, names={"COLUMNS": "60"})
    assert outcome.code == 0, outcome.err
    assert "…" not in outcome.out
    assert max(map(len, outcome.out.splitlines()[:8])) <= 60
