"""`fedul check` as a user types it: what was read, a verdict for scripts, and wrong tables."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import fedul as package

from ..data_files import write_hospitals
from .checks import refuses
from .command import Fedul

DATA = "--data patients.csv --priors prevalence.csv --client-column hospital --set-column month"
CHECK = f"check {DATA} --ignore-columns truth"
ISLANDS = {
    "Biscoe": ((23, 0, 77), (28, 0, 72), (27, 0, 73)),
    "Dream": ((43, 57, 0), (47, 53, 0), (45, 55, 0)),
    "Torgersen": ((100, 0, 0), (100, 0, 0), (100, 0, 0)),
}
"""Shares of Adelie, Chinstrap and Gentoo penguins on three islands in three years."""

Change = Callable[[list[str], list[list[str]]], None]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    write_hospitals(tmp_path)
    return tmp_path


def rewrite(path: Path, change: Change) -> None:
    """Change the header and the rows of a CSV file."""
    with path.open(newline="") as file:
        head, *rows = csv.reader(file)
    change(head, rows)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([head, *rows])


def add_column(name: str, value: Callable[[int], object]) -> Change:
    def change(head: list[str], rows: list[list[str]]) -> None:
        head.append(name)
        for number, row in enumerate(rows):
            row.append(str(value(number)))

    return change


def write_penguins(folder: Path) -> None:
    generator = np.random.default_rng(0)
    rows, priors = ["island,year,bill"], ["island,year,Adelie,Chinstrap,Gentoo"]
    for island, years in ISLANDS.items():
        for year, shares in enumerate(years, 2007):
            priors.append(f"{island},{year},{','.join(map(str, shares))}")
            rows += [f"{island},{year},{generator.normal():.3f}" for _ in range(30)]
    (folder / "penguins.csv").write_text("\n".join(rows) + "\n")
    (folder / "shares.csv").write_text("\n".join(priors) + "\n")


def test_the_document_says_what_was_read(fedul: Fedul, files: Path) -> None:
    document = fedul(f"{CHECK} --json").document
    columns = {column["name"]: column for column in document["columns"]}
    assert list(columns) == ["temperature", "days", "cough", "ward"]
    assert [column["kind"] for column in columns.values()] == ["number", "number", "boolean", "category"]
    assert columns["ward"]["words"] == ["A", "B"]
    assert columns["temperature"]["missing"] > 0
    assert 30 < columns["temperature"]["low"] < columns["temperature"]["high"] < 45
    assert [each["name"] for each in document["classes"]] == ["flu", "cold"]
    for each in document["classes"]:
        assert each["share"] == pytest.approx(each["test_share"])
    assert document["priors"] == {"unit": "proportions", "of": ["population"], "rounding": 5e-05}
    shown = fedul(CHECK).out
    assert "classes (share of all rows): flu 5" in shown
    assert "class priors: proportions, rounded to 0.01 %, of a population" in shown


@pytest.mark.parametrize(
    ("change", "note"),
    [
        (
            add_column("age", lambda n: -999 if n in (4, 9) else 20 + n % 60),
            "has -999 in 2 rows, first in patients.csv, line 6",
        ),
        (add_column("dose", lambda n: 1e30 if n == 7 else n % 50), "has 1e+30 in 1 row, first in patients.csv, line 9"),
        (add_column("zip", lambda n: f"0{1000 + n * 37 % 800}"), "has codes with leading zeros ('01000')"),
        (add_column("entry", lambda n: n), "numbers the rows like an identifier"),
        (add_column("history", lambda n: "flu" if n % 3 else "asthma"), "has class names as values and is used"),
    ],
)
def test_a_suspicious_column_is_pointed_out_and_used(fedul: Fedul, files: Path, change: Change, note: str) -> None:
    rewrite(files / "patients.csv", change)
    document = fedul(f"{CHECK} --json").document
    (warning,) = document["warnings"]
    assert note in warning
    column = document["columns"][-1]
    assert column["kind"] != "left out"
    assert warning == f"column '{column['name']}' {column['note']}"
    assert note.split(",")[0] in " ".join(fedul(CHECK).out.split())


def test_python_returns_what_the_command_prints(fedul: Fedul, files: Path) -> None:
    study = package.load(
        files / "patients.csv",
        files / "prevalence.csv",
        client_column="hospital",
        set_column="month",
        ignore_columns=["truth"],
    )
    result = package.check(study)
    assert json.loads(json.dumps(result.to_dict())) == fedul(f"{CHECK} --json").document
    screen = io.StringIO()
    Console(file=screen, width=100, highlight=False).print(result)
    assert fedul(CHECK).out.startswith(screen.getvalue())


def test_penguins_by_island_are_worth_little_unless_islands_are_compared(fedul: Fedul, tmp_path: Path) -> None:
    write_penguins(tmp_path)
    line = "check --data penguins.csv --priors shares.csv --set-column year --client-column island"
    found = fedul(f"{line} --json").document
    assert (found["compared"], found["verdict"]) == ("all sets", "enough")
    assert found["within_clients"]["verdict"] == "not enough"
    assert found["within_clients"]["forecast"]["labels_worth_high"] <= 1
    assert found["pooled"]["forecast"] == found["forecast"]
    assert found["forecast"]["labels_worth_low"] > 20
    assert "the rows are worth less than one labelled row: not enough" in " ".join(fedul(line).out.split())


def test_a_script_can_use_the_verdict(fedul: Fedul, files: Path) -> None:
    assert fedul(f"{CHECK} --strict").code == 0
    assert fedul(f"{CHECK} --json").document["verdict"] == "enough"
    priors = files / "prevalence.csv"
    priors.write_text(
        "hospital,month,flu,cold\n"
        + "".join(
            f"{name},m{month},{0.5 + month / 100},{0.5 - month / 100}\n"
            for name, months in (("North", 2), ("South", 3))
            for month in range(months)
        )
    )
    outcome = fedul(f"{CHECK} --json --strict")
    assert (outcome.code, outcome.document["verdict"], outcome.document["identifiable"]) == (3, "not enough", True)
    assert fedul(CHECK).code == 0
    trained = fedul(f"train {DATA} --ignore-columns truth --choose off --rounds 1 --out RUN")
    assert trained.code == 0
    assert "Not enough: the 600 rows are worth" in " ".join(trained.err.split())


def test_a_number_beside_the_classes_is_no_class(fedul: Fedul, files: Path) -> None:
    rewrite(files / "prevalence.csv", add_column("beds", lambda n: 100 + n))
    refuses(
        fedul,
        files,
        CHECK,
        "prevalence.csv: column 'beds' is not a class: without it, the shares of every set sum to 1",
    )
    found = fedul(f"{CHECK} --classes flu,cold --json").document
    assert [each["name"] for each in found["classes"]] == ["flu", "cold"]


def test_one_class_column_is_enough_for_two_classes(fedul: Fedul, files: Path) -> None:
    def only_flu(head: list[str], rows: list[list[str]]) -> None:
        for line in (head, *rows):
            del line[3]

    both = fedul(f"{CHECK} --json").document
    rewrite(files / "prevalence.csv", only_flu)
    alone = fedul(f"{CHECK} --json").document
    assert [each["name"] for each in alone["classes"]] == ["flu", "not flu"]
    assert "'flu', read as proportions; class 'not flu' has the rest of each set" in alone["warnings"][0]
    assert "--classes 'flu,NAME'" in alone["warnings"][0]
    named = fedul(f"{CHECK} --classes flu,cold --json").document
    assert (named["summary"], named["advice"]) == (both["summary"], both["advice"])


def test_sets_of_one_row_are_explained(fedul: Fedul, tmp_path: Path) -> None:
    shares = [0.2, 0.8] * 20
    (tmp_path / "t.csv").write_text("set,x\n" + "".join(f"{n},{n % 7}\n" for n in range(40)))
    (tmp_path / "p.csv").write_text("set,a,b\n" + "".join(f"{n},{p},{1 - p:.1f}\n" for n, p in enumerate(shares)))
    refuses(
        fedul,
        tmp_path,
        "train --data t.csv --priors p.csv --method fedul --rounds 1 --out RUN",
        "no rows are held out to select the round by (the largest set has 1 row); merge small sets",
    )


def test_a_long_list_of_columns_says_how_many_are_left_out(fedul: Fedul, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(",".join(f"c{number}" for number in range(15)) + "\n")
    (tmp_path / "p.csv").write_text("set,a,b\nx,0.5,0.5\n")
    refuses(fedul, tmp_path, "check --data t.csv --priors p.csv", "c11 and 3 more.")
