"""What a run says about its labels and the population that its classifier is for."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from ..data_files import write_hospitals
from .command import Fedul

DATA = "--data patients.csv --priors prevalence.csv --client-column hospital --set-column month"
QUICK = f"train {DATA} --ignore-columns truth --choose off --rounds 1"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    write_hospitals(tmp_path)
    return tmp_path


def label_rows(folder: Path, rows: int) -> None:
    """Write patients.csv with the true class of its first rows in the column `known`."""
    with (folder / "patients.csv").open(newline="") as file:
        head, *lines = csv.reader(file)
    lines = [[*line, line[-1] if number < rows else ""] for number, line in enumerate(lines)]
    with (folder / "patients.csv").open("w", newline="") as file:
        csv.writer(file).writerows([[*head, "known"], *lines])


def test_rows_of_the_label_column_are_counted_in_result_page_and_card(fedul: Fedul, files: Path) -> None:
    label_rows(files, 30)
    trained = fedul(f"{QUICK} --label-column known --out RUN")
    assert "with labels of 30 of them" in trained.out
    assert json.loads((files / "RUN" / "result.json").read_text())["labels_used"] == 30
    fedul("report RUN --out page.html")
    page = (files / "page.html").read_text()
    assert "with 30 labels" in page
    assert "without labels?" not in page
    card = fedul("export RUN --format card --out card.md --json").document["card"]
    assert card["model"]["labels_used"] == 30
    assert any("used the labels of 30 rows" in limit for limit in card["limits"])


def test_own_data_are_for_their_natural_mix_and_benchmarks_for_a_uniform_one(fedul: Fedul, files: Path) -> None:
    trained = fedul(f"{QUICK} --out RUN")
    assert "with no labels" in trained.out
    assert "for the class mix flu 5" in trained.out
    assert "(that of all rows); --test-prior changes it" in " ".join(trained.out.split())
    record = json.loads((files / "RUN" / "config.json").read_text())
    assert record["data"]["test_prior"] == "natural"
    fedul("train --data digits --rows 300 --clients 2 --choose off --rounds 1 --out DIGITS")
    assert json.loads((files / "DIGITS" / "config.json").read_text())["data"]["test_prior"] == "uniform"


def test_a_run_with_a_uniform_mix_stays_with_it_when_it_is_resumed_or_evaluated(fedul: Fedul, files: Path) -> None:
    assert fedul(f"{QUICK} --test-prior uniform --out OLD").code == 0
    again = fedul(f"{QUICK.replace('--rounds 1', '--rounds 2')} --out OLD --resume")
    assert again.code == 0
    assert "for the class mix flu 50.0%, cold 50.0% (--test-prior uniform)" in " ".join(again.out.split())
    assert json.loads((files / "OLD" / "config.json").read_text())["data"]["test_prior"] == "uniform"
    refused = fedul(f"{QUICK} --test-prior natural --out OLD --resume")
    assert refused.code == 2
    assert "test-prior is uniform there, natural here" in refused.err
